"""Cuts a graph into pieces that one family each can compute, with as little traffic as can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from kopt.model.problem import ArgumentInfo, TensorInfo
from kopt_starters.codegen.parts import REWRITES
from kopt_starters.graph import Graph, Node, Value
from kopt_starters.pipeline.tidying import VIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.family import Family

HEAVY = frozenset({"addmm", "addmv", "baddbmm", "bmm", "convolution", "dot", "mm", "mv"})
"""Operators that do more than read what they are given once."""
POOLS = frozenset(
    {"avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"}
)
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4}
_LAUNCH = 1 << 23
"""What a launch costs, as bytes that could have been moved meanwhile: some 3 microseconds."""
_MOST_NODES = 48
"""Longer graphs are not cut: what there is to try grows with the square."""


def bytes_of(value: Value) -> int:
    """Return how much memory a value takes."""
    return value.elements * _BYTES.get(value.dtype, 2 if "16" in value.dtype else 1)


@dataclass(frozen=True, eq=False)
class Piece:
    """Operators that follow one another, as a graph of their own with one result."""

    graph: Graph
    result: Value
    candidates: tuple[Candidate, ...]
    """Kernels for it, the best first; none for a view, which the launcher does."""

    @property
    def heavy(self) -> bool:
        """It holds a product or a convolution."""
        return any(node.operator in HEAVY for node in self.graph.nodes)

    @cached_property
    def traffic(self) -> int:
        """Bytes that it reads and writes at least; none for a view."""
        if not self.candidates:
            return 0
        read = {value.name: value for node in self.graph.nodes for value in node.tensors}
        given = [value for name, value in read.items() if self.graph.tensor(name)]
        return sum(map(bytes_of, [*given, self.result]))


def cut(graph: Graph, families: Sequence[Family], target: Target) -> list[Piece] | None:
    """Return the pieces of a graph, in order; None where no families cover it.

    Of all ways to cut the operators' order (that of the trace, and one in which what is made of
    arguments alone comes late), the one whose pieces together read and write least; of those the
    one that does most beside products and convolutions, in the same kernels.
    """
    if len(graph.nodes) > _MOST_NODES or graph.result is None:
        return None
    late = replace(graph, nodes=tuple(_late(graph)))
    orders = [graph] if late.nodes == graph.nodes else [graph, late]
    ways = [way for order in orders if (way := _best_way(order, families, target)) is not None]
    return min(ways, key=lambda way: way[0])[1] if ways else None


def _late(graph: Graph) -> list[Node]:
    """Return operators in an order in which what needs arguments alone stands before its user."""
    early: set[str] = set()
    for node in graph.nodes:
        of_arguments = all(v.name in early or graph.tensor(v.name) for v in node.tensors)
        if of_arguments and node.operator not in HEAVY:
            early |= {value.name for value in node.outputs}
    ordered: list[Node] = []

    def put(node: Node) -> None:
        for value in node.tensors:
            maker = graph.producer(value)
            if maker is not None and maker not in ordered:
                put(maker)
        if node not in ordered:
            ordered.append(node)

    for node in graph.nodes:
        if node.output.name not in early or node.output in graph.results:
            put(node)
    return ordered


_Way: TypeAlias = "tuple[tuple[int, int], list[Piece]]"
"""Traffic in bytes, the number of operators in heavy pieces (negative), and the pieces."""


def _best_way(graph: Graph, families: Sequence[Family], target: Target) -> _Way | None:
    count = len(graph.nodes)
    best: list[_Way | None] = [((0, 0), []), *[None] * count]
    for first in range(count):
        before = best[first]
        for last in range(count, first, -1):
            piece = piece_of(graph, first, last, families, target) if before is not None else None
            if piece is None or before is None:
                continue
            (traffic, beside), pieces = before
            traffic += piece.traffic + (_LAUNCH if piece.candidates else 0)
            beside -= len(piece.graph.nodes) if piece.heavy else 0
            known = best[last]
            if known is None or (traffic, beside) < known[0]:
                best[last] = ((traffic, beside), [*pieces, piece])
    return best[count]


def piece_of(
    graph: Graph, first: int, last: int, families: Sequence[Family], target: Target
) -> Piece | None:
    """Return a range of operators as a piece; None where it is none that a family computes."""
    nodes = graph.nodes[first:last]
    if not _plausible(nodes):
        return None
    result = _only_result(graph, first, last)
    if result is None:
        return None
    part = _part(graph, nodes, result)
    if all(node.operator in VIEWS for node in nodes):
        return Piece(part, result, ())
    for family in families:
        candidates = tuple(family.propose(part, target))
        if candidates:
            return Piece(part, result, candidates)
    return None


def _plausible(nodes: Sequence[Node]) -> bool:
    """Whether families need be asked: what they would refuse costs time."""
    heavy = sum(node.operator in HEAVY for node in nodes)
    pools = sum(node.operator in POOLS for node in nodes)
    reducing = sum(node.operator in REWRITES and node.overload != "other" for node in nodes)
    if heavy:
        alone = heavy == 1 and all(node.operator != "convolution" for node in nodes)
        return not pools and not (alone and reducing)
    return not pools or len(nodes) in (1, 3)


def _only_result(graph: Graph, first: int, last: int) -> Value | None:
    """Return the value that is needed behind a range of operators; None where there are several."""
    after = {value.name for node in graph.nodes[last:] for value in node.tensors}
    after |= {value.name for value in graph.results}
    made = (value for node in graph.nodes[first:last] for value in node.outputs)
    needed = [value for value in made if value.name in after]
    return needed[0] if len(needed) == 1 else None


def _part(graph: Graph, nodes: Sequence[Node], result: Value) -> Graph:
    """Return operators as a graph; its arguments are what they read, and all numbers."""
    made = {value.name for node in nodes for value in node.outputs}
    read = {value.name: value for node in nodes for value in node.tensors}
    known = {argument.name: argument for argument in graph.arguments}
    tensors = {name: value for name, value in read.items() if name not in made}
    arguments = [known.get(name) or _argument(value) for name, value in tensors.items()]
    arguments += [argument for argument in graph.arguments if argument.kind == "scalar"]
    call = graph.call.model_copy(
        update={"arguments": tuple(arguments), "outputs": (_info(result),), "trace": ()}
    )
    return replace(
        graph, call=call, arguments=tuple(arguments), nodes=tuple(nodes), results=(result,),
        _tensors=tensors,
    )  # fmt: skip


def _argument(value: Value) -> ArgumentInfo:
    return ArgumentInfo(name=value.name, kind="tensor", tensor=_info(value))


def _info(value: Value) -> TensorInfo:
    return TensorInfo(name=value.name, dtype=value.dtype, shape=value.shape)
