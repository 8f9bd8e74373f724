"""Products with a diagonal matrix that is never made: ``diag(v) @ x``, ``x @ diag(v)``, ``v[:, None] * x``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters.gpu import nearest, power_of_two
from kopt_starters.products.launching import scalar_checks
from kopt_starters.products.writing import header, names_fit
from kopt_starters.rendering import identifier, template

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt_starters.graph import Graph, Node, Value

_DTYPES = frozenset({"float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class Diagonal:
    """A matrix whose rows (or columns) are each multiplied with a factor of their own."""

    factors: Value
    matrix: Value
    rowwise: bool


def diagonal_of(graph: Graph) -> Diagonal | None:
    """Return the product with a diagonal matrix that a graph is; None where it is another."""
    last = graph.producer(graph.result) if graph.result else None
    if last is None or len(last.tensors) != 2:
        return None
    first, second = last.tensors
    if last.operator == "mm":
        found = _spread(graph, first, second, True) or _spread(graph, second, first, False)
    elif last.operator == "mul" and last.overload == "Tensor":
        found = _column(graph, first, second) or _column(graph, second, first)
    else:
        return None
    return found if found and _simple(graph, found) else None


def _spread(graph: Graph, diagonal: Value, matrix: Value, rowwise: bool) -> Diagonal | None:
    """Return the product where one operand is a vector spread over a main diagonal."""
    node = graph.producer(diagonal)
    if node is None or node.operator != "diag_embed" or len(node.tensors[0].shape) != 1:
        return None
    # Which diagonal, and in which two dimensions of the result: as torch.diag asks for them.
    usual = [
        node.argument(1, "offset", 0),
        node.argument(2, "dim1", -2),
        node.argument(3, "dim2", -1),
    ]
    return Diagonal(node.tensors[0], matrix, rowwise) if usual == [0, -2, -1] else None


def _column(graph: Graph, factors: Value, matrix: Value) -> Diagonal | None:
    """Return the product where one operand is a vector as a column."""
    node = graph.producer(factors)
    rank, shape = len(matrix.shape), factors.shape
    if node is None or not _unsqueezes(node) or rank != 2 or shape != (matrix.shape[0], 1):
        return None
    return Diagonal(node.tensors[0], matrix, True)


def _unsqueezes(node: Node) -> bool:
    return node.operator in ("unsqueeze", "view") and len(node.tensors[0].shape) == 1


def _simple(graph: Graph, found: Diagonal) -> bool:
    """Whether both are arguments of one dtype, and nothing else happens."""
    values = [found.factors, found.matrix]
    dtypes = {value.dtype for value in [*values, *graph.results]}
    if len(graph.nodes) != 2 or any(graph.producer(value) for value in values):
        return False
    return len(dtypes) == 1 and dtypes <= _DTYPES and 0 not in found.matrix.shape


def scaling(graph: Graph, found: Diagonal) -> Candidate | None:
    """Return the kernel that scales rows or columns; None where names would clash."""
    knobs = _knobs(found)
    if not names_fit(graph, [*knobs, "M", "N", "out", "_scaled"]):
        return None
    names = [identifier(argument.name) for argument in graph.arguments]
    x, factors = identifier(found.matrix.name), identifier(found.factors.name)
    side = 0 if found.rowwise else 1
    refusal = [
        *scalar_checks(graph),
        f"{x}.dim() != 2",
        f"{factors}.dim() != 1",
        f"{factors}.shape[0] != {x}.shape[{side}]",
    ]
    source = template("product_diagonal.py.txt").substitute(
        header=header(knobs),
        parameters=", ".join([*names, "*", *knobs]),
        refusal=" or ".join(refusal),
        index="m" if found.rowwise else "n",
        extent="M" if found.rowwise else "N",
        factor="factor[:, None]" if found.rowwise else "factor[None, :]",
        x=x,
        factors=factors,
    )
    idea = "product: rows scaled" if found.rowwise else "product: columns scaled"
    return parse_kernel(source, "triton", strategy="starters", idea=idea)


def _knobs(found: Diagonal) -> dict[str, Knob]:
    block = min(1024, max(16, power_of_two(found.matrix.shape[1])))
    return {
        "ROWS": nearest(max(1, 4096 // block), {1, 2, 4, 8, max(1, 4096 // block)}),
        "BLOCK": nearest(block, {max(16, block // 2), block, min(2 * block, 2048)}),
        "num_warps": nearest(4, {4, 8}),
    }
