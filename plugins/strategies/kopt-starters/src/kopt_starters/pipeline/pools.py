"""Poolings of poolings as one, where windows lie side by side: the same elements, read once."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from kopt_starters.graph import Graph, Node
from kopt_starters.pipeline.linear import each

_DIMS = {
    "avg_pool2d": 2, "avg_pool3d": 3, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
}  # fmt: skip
_MOST_TAPS = 64
"""The largest window of two: beyond, a small result leaves too few programs to read what it needs."""


def merged_pools(graph: Graph) -> Graph:
    """Return the graph with a pooling, and one of what it makes, as a single one.

    Left out at the end are as many places as by two: ``n // a // b`` is ``n // (a * b)``.
    """
    for node in graph.nodes:
        inner = graph.producer(node.tensors[0]) if node.tensors else None
        one = _joined(graph, inner, node) if inner is not None else None
        if one is not None:
            nodes = tuple(
                one if other is node else other for other in graph.nodes if other is not inner
            )
            return merged_pools(replace(graph, nodes=nodes))
    return graph


def _joined(graph: Graph, inner: Node, outer: Node) -> Node | None:
    if inner.operator != outer.operator or inner.operator not in _DIMS:
        return None
    first, second = _side_by_side(inner), _side_by_side(outer)
    if first is None or second is None or not _only_values(graph, inner, outer):
        return None
    window = tuple(a * b for a, b in zip(first, second, strict=True))
    if prod(window) > _MOST_TAPS:
        return None
    x = inner.tensors[0]
    return Node(outer.operator, outer.overload, (x, window, window), {}, outer.outputs)


def _only_values(graph: Graph, inner: Node, outer: Node) -> bool:
    """Whether nobody asks where the largest elements are, or for what is in between."""
    alone = graph.users(inner.output) == [outer] and inner.output not in graph.results
    indices = [*inner.outputs[1:], *outer.outputs[1:]]
    unused = all(not graph.users(value) and value not in graph.results for value in indices)
    return alone and unused and outer.tensors[0] == inner.output


def _side_by_side(node: Node) -> tuple[int, ...] | None:
    """Return a pooling's window; None where windows overlap, or some hold fewer elements."""
    count, largest = _DIMS[node.operator], node.operator.startswith("max")
    window = each(node.argument(1, "kernel_size"), count)
    stride = each(node.argument(2, "stride") or window, count)
    padding = each(node.argument(3, "padding", 0), count)
    dilation = each(node.argument(4, "dilation", 1) if largest else 1, count)
    ceil = node.argument(5 if largest else 4, "ceil_mode", False)
    divisor = None if largest else node.argument(6, "divisor_override")
    plain = not any(padding) and set(dilation) == {1} and not ceil and divisor is None
    return window if plain and stride == window and len(window) == count else None
