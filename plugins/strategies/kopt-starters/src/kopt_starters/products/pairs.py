"""Recognises two products of one left operand whose results are joined element by element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kopt_starters.codegen import epilogue
from kopt_starters.graph import Node, Value
from kopt_starters.products.axes import aligned
from kopt_starters.products.matching import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kopt_starters.codegen import Epilogue
    from kopt_starters.graph import Graph
    from kopt_starters.products.axes import Axis

_PLAIN = frozenset({"mm", "bmm"})
_ADDING = frozenset({"addmm", "baddbmm"})
_RESHAPES = frozenset({"_unsafe_view", "reshape", "view"})


@dataclass(frozen=True)
class Matrix:
    """An argument as matrices lie in it."""

    tensor: Value
    strides: tuple[int, int, int]
    """From one batch, row and column to the next; 0 where there is only one."""
    start: int = 0
    """Elements before the first one that is read."""


@dataclass(frozen=True)
class Pair:
    """``f(left @ right[0], left @ right[1])``, f being an element-wise ``epilogue``."""

    left: Matrix
    right: tuple[Matrix, Matrix]
    sizes: tuple[int, int, int, int]
    """Batches, rows, columns and depth of either product."""
    epilogue: Epilogue


@dataclass(frozen=True)
class _Half:
    """Columns of a product, from ``start`` on, and the operators that make the graph's values."""

    product: Node
    start: int
    value: Value
    nodes: tuple[Node, ...]


def pair_of(graph: Graph) -> Pair | None:
    """Return the pair of products that a graph is; None where it is another, or more than that.

    Instead of two products there may be one whose result is split in two equal parts along its
    columns.
    """
    products = [node for node in graph.nodes if node.operator in _PLAIN | _ADDING]
    if not 1 <= len(products) <= 2 or not all(map(_understood, products)):
        return None
    halves = [half for node in products for half in _halves(graph, node, len(products) == 1)]
    if len(halves) != 2:
        return None
    first, second = halves
    tail = epilogue(_rewritten(graph, halves), first.value, second.value)
    operands = [_operands(graph, half) for half in halves]
    (left, right), (again, other) = operands
    if tail is None or left is None or left != again or right is None or other is None:
        return None
    batch, rows, columns = (1, *first.value.shape)[-3:]
    depth = first.product.tensors[-1].shape[-2]
    return Pair(left, (right, other), (batch, rows, columns, depth), tail)


def _understood(node: Node) -> bool:
    """Whether a product is one of tensors with elements, and nothing is scaled."""
    scaled = any(node.named.get(name, 1) != 1 for name in ("alpha", "beta"))
    count = 3 if node.operator in _ADDING else 2
    plain = node.overload == "default" and len(node.given) == len(node.tensors) == count
    return plain and not scaled and all(value.elements for value in node.tensors)


def _halves(graph: Graph, node: Node, split: bool) -> Iterator[_Half]:
    """Yield what a product is used as: whole, or two halves of its columns."""
    bias = node.tensors[0] if node.operator in _ADDING else None
    shape = node.output.shape
    if not split:
        value = replace(node.output, name=f"{node.output.name}_product") if bias else node.output
        added = (Node("add", "Tensor", (value, bias), {}, (node.output,)),) if bias else ()
        yield _Half(node, 0, value, added)
        return
    wide = shape[-1] // 2
    whole = bias is None or (bias.shape == shape[-1:] and graph.tensor(bias.name) is not None)
    taken = _taken(graph, node.output) if whole and not shape[-1] % 2 else None
    for start in (0, wide) if taken else ():
        value = Value(f"{node.output.name}_{start}", (*shape[:-1], wide), node.output.dtype)
        last, nodes = value, []
        if bias is not None:
            last = replace(value, name=f"{value.name}_biased")
            part = replace(bias, name=f"{bias.name}[{start}:{start + wide}]", shape=(wide,))
            nodes.append(Node("add", "Tensor", (value, part), {}, (last,)))
        made = [each for at, each in taken or () if at == start]
        nodes += [Node("view", "default", (last, each.shape), {}, (each,)) for each in made]
        yield _Half(node, start, value, (*nodes, *_gated_units(graph, start)))


def _taken(graph: Graph, value: Value) -> list[tuple[int, Value]] | None:
    """Return what is taken of a value's last dimension: halves, each by its first column.

    None where anything else is done with the value.
    """
    while len(users := graph.users(value)) == 1 and users[0].operator in _RESHAPES:
        if users[0].output.shape[-1:] != value.shape[-1:]:
            return None
        value = users[0].output
    found: list[tuple[int, Value]] = []
    for node in users:
        halves = _cut(node, value)
        if halves is None:
            return None
        found += halves
    return found


def _cut(node: Node, value: Value) -> list[tuple[int, Value]] | None:
    """Return the halves that an operator takes of a value along its last dimension."""
    rank, wide = len(value.shape), value.shape[-1] // 2
    if node.operator == "glu" and node.argument(1, "dim", -1) in (-1, rank - 1):
        return _operands_of_unit(node)
    if node.operator in ("split", "split_with_sizes"):
        along = node.argument(2, "dim", 0) in (-1, rank - 1)
        even = len(node.outputs) == 2 and node.outputs[0].shape[-1] == wide
        return [*zip((0, wide), node.outputs, strict=True)] if along and even else None
    if node.operator != "slice" or node.argument(1, "dim", 0) not in (-1, rank - 1):
        return None
    start, end = node.argument(2, "start") or 0, node.argument(3, "end")
    last = min(end, 2 * wide) if isinstance(end, int) else 2 * wide
    if node.argument(4, "step", 1) != 1 or (start, last) not in ((0, wide), (wide, 2 * wide)):
        return None
    return [(wide if start else 0, node.output)]


def _operands_of_unit(node: Node) -> list[tuple[int, Value]]:
    """Return the values that a gated linear unit multiplies, the second through a sigmoid."""
    out = node.output
    return [
        (start, replace(out, name=f"{out.name}_{name}"))
        for start, name in ((0, "linear"), (out.shape[-1], "gate"))
    ]


def _gated_units(graph: Graph, start: int) -> list[Node]:
    """Return what gated linear units do with their halves, once for both."""
    found = []
    for node in (each for each in graph.nodes if each.operator == "glu" and not start):
        (_, linear), (_, gate) = _operands_of_unit(node)
        share = replace(gate, name=f"{node.output.name}_share")
        found.append(Node("sigmoid", "default", (gate,), {}, (share,)))
        found.append(Node("mul", "Tensor", (linear, share), {}, (node.output,)))
    return found


def _rewritten(graph: Graph, halves: Sequence[_Half]) -> Graph:
    """Return a graph in which halves are values, and parts of a bias are arguments."""
    nodes = [node for half in halves for node in half.nodes]
    made = {value.name for node in nodes for value in node.outputs}
    kept = [node for node in graph.nodes if made.isdisjoint(v.name for v in node.outputs)]
    biases = {value.name: value for node in nodes for value in node.tensors if "[" in value.name}
    known = {a.name: value for a in graph.arguments if (value := graph.tensor(a.name)) is not None}
    return replace(graph, nodes=(*kept, *nodes), _tensors=known | biases)


def _operands(graph: Graph, half: _Half) -> tuple[Matrix | None, Matrix | None]:
    left, right = half.product.tensors[-2:]
    return _matrix(graph, left), _matrix(graph, right, half.start)


def _matrix(graph: Graph, value: Value, column: int = 0) -> Matrix | None:
    """Return an operand, from one of its columns on; None where it is no view of an argument."""
    found = resolved(graph, value, set())
    if found is None or graph.tensor(found[0].name) is None:
        return None
    tensor, axes = found
    strides = [_stride(axis) for axis in ((), *axes)[-3:]]
    known = [stride for stride in strides if stride is not None]
    if len(known) < len(strides):
        return None
    batch, row, step = known
    return Matrix(tensor, (batch, row, step), column * step)


def _stride(axis: Axis) -> int | None:
    """Return the only stride of an axis; None where it has several."""
    steps = aligned([axis])
    if steps is None or len(steps) > 1:
        return None
    return steps[0].strides[0] if steps else 0
