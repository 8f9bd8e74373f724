"""Takes means before products and convolutions instead of after them: what is linear may be swapped.

The mean of what a product makes is the product with the mean of its columns, and an average pooling
of what a convolution makes is a convolution with pooled weights. That is exact up to rounding for
all values that do not overflow, and is much less to do.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.graph import Graph, Node, Value
from kopt_starters.pipeline.linear import (
    POOLS,
    each,
    of_convolution,
    of_dimension,
    of_product,
    of_transposed,
    window_of,
)
from kopt_starters.pipeline.tidying import VIEWS, given_instead, named, needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_starters.graph import Given

_PRODUCTS = frozenset({"addmm", "mm"})
_AFFINE = frozenset({"add", "div", "mul", "sub"})
_MOST_STEPS = 64


def averaged_first(graph: Graph) -> Graph | None:
    """Return a tidied graph with means taken before what is linear; None where there are none."""
    changed = _Rewriting(graph)
    nodes = changed.done()
    if not changed.swapped:
        return None
    return named(replace(graph, nodes=tuple(needed(nodes, graph.results))))


class _Rewriting:
    """Moves one mean or pooling after the other upwards, as far as it goes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.swapped = False
        """Whether a mean moved before a product or a convolution."""
        self._count = 0

    def done(self) -> list[Node]:
        for _ in range(_MOST_STEPS):
            nodes = list(self._graph.nodes)
            found = next(((n, new) for n in nodes for new in [self._step(n)] if new), None)
            if found is None:
                break
            at = nodes.index(found[0])
            nodes[at : at + 1] = found[1]
            kept = tuple(needed(nodes, self._graph.results))
            self._graph = replace(self._graph, nodes=kept)
        return list(self._graph.nodes)

    def _value(self, shape: Sequence[int], dtype: str) -> Value:
        self._count += 1
        return Value(f"swapped {self._count}", tuple(shape), dtype)

    def _step(self, node: Node) -> list[Node] | None:
        """Return what replaces an operator; None where it stays."""
        if node.operator in ("mean", "sum") and node.overload in ("dim", "dim_IntList"):
            return self._plainer(node) or self._mean(node)
        if node.operator in POOLS and _simple(node):
            return self._along_rows(node) or self._pool(node)
        return None

    def _plainer(self, node: Node) -> list[Node] | None:
        """A sum is a mean times its count, and means keep their dimensions."""
        (x, *_), out = node.tensors, node.output
        dims = _dims(node)
        kept = tuple(1 if dim in dims else extent for dim, extent in enumerate(x.shape))
        if node.operator == "mean" and out.shape == kept:
            return None
        if not self._linear(x) or node.named.get("dtype") is not None or out.dtype != x.dtype:
            return None
        mean = self._value(kept, out.dtype)
        found = [Node("mean", "dim", (x, dims, True), {}, (mean,))]
        if node.operator == "sum":
            total = self._value(kept, out.dtype)
            count = float(prod(x.shape[dim] for dim in dims))
            found.append(Node("mul", "Tensor", (mean, count), {}, (total,)))
            mean = total
        return [*found, Node("view", "default", (mean, out.shape), {}, (out,))]

    def _linear(self, value: Value) -> bool:
        """Whether a value is made by a product or a convolution and then scaled and shifted."""
        for _ in range(_MOST_STEPS):
            node = self._only_for(value)
            if node is None:
                return False
            if node.operator in {*_PRODUCTS, "convolution"}:
                return True
            if node.operator not in {*_AFFINE, *VIEWS, *POOLS, "_to_copy"}:
                return False
            value = node.tensors[0]
        return False

    def _only_for(self, value: Value) -> Node | None:
        """Return what makes a value that one operator alone needs."""
        alone = len(self._graph.users(value)) == 1 and value not in self._graph.results
        return self._graph.producer(value) if alone else None

    def _mean(self, node: Node) -> list[Node] | None:
        x, dims = node.tensors[0], _dims(node)
        maker = self._only_for(x)
        if maker is None:
            return None
        found = None
        if maker.operator in _PRODUCTS and dims == (1,):
            found = self._of_product(node, maker, (1, maker.output.shape[1]))
        elif maker.operator == "view" and dims == (2,) and len(x.shape) == 3:
            inner = self._only_for(maker.tensors[0])
            rows = inner is not None and x.shape[0] == inner.output.shape[0]
            if inner is not None and inner.operator in _PRODUCTS and rows:
                found = self._of_product(node, inner, (x.shape[1], x.shape[2]))
        elif maker.operator == "convolution":
            found = of_transposed(self._value, node, maker, dims)
            found = found or of_dimension(self._value, node, maker, dims)
        else:
            return self._before(node, maker, dims)
        self.swapped = self.swapped or found is not None
        return found

    def _of_product(self, node: Node, product: Node, groups: tuple[int, int]) -> list[Node] | None:
        right = self._graph.producer(product.tensors[-1])
        return of_product(self._value, node, product, groups, right)

    def _before(self, node: Node, maker: Node, dims: Sequence[int]) -> list[Node] | None:
        """Put a mean before an operator that scales or shifts."""
        y = maker.tensors[0] if maker.tensors else None
        if maker.operator == "_to_copy" and y is not None:
            mean = self._value(node.output.shape, y.dtype)
            first = replace(_given(node, y), outputs=(mean,))
            return [first, replace(maker, given=(mean, *maker.given[1:]), outputs=(node.output,))]
        if maker.operator not in _AFFINE or maker.named or len(maker.given) != 2:
            return None
        if (joined := self._into_bias(node, maker)) is not None:
            return joined
        sides = [side for side in maker.given if isinstance(side, Value)]
        whole = [side for side in sides if side.shape == maker.output.shape]
        if len(whole) != 1 or (maker.operator == "div" and maker.given[0] is not whole[0]):
            return None
        (y,) = whole
        mean = self._value(node.output.shape, y.dtype)
        nodes = [replace(_given(node, y), outputs=(mean,))]
        given: list[Given] = []
        for side in maker.given:
            if side is y:
                given.append(mean)
            elif isinstance(side, Value) and not _still(side, len(y.shape), dims):
                along = dims == (len(y.shape) - 1,) and side.shape == y.shape[-1:]
                if not along or maker.operator not in ("add", "sub") or node.operator != "mean":
                    return None
                given.append(self._value((1,), side.dtype))
                nodes.append(Node("mean", "dim", (side, (0,), True), {}, (given[-1],)))  # type: ignore[arg-type]
            else:
                given.append(side)
        return [*nodes, replace(maker, given=tuple(given), outputs=(node.output,))]

    def _into_bias(self, node: Node, maker: Node) -> list[Node] | None:
        """Add what is added to every row of a product to its bias: one mean less to take."""
        y, added = maker.given
        product = self._only_for(y) if isinstance(y, Value) else None
        if maker.operator not in ("add", "sub") or not isinstance(added, Value):
            return None
        if product is None or product.operator != "addmm" or product.named:
            return None
        bias = product.given[0]
        if not isinstance(bias, Value) or not bias.shape == added.shape == y.shape[-1:]:  # type: ignore[union-attr]
            return None
        both, moved = self._value(bias.shape, bias.dtype), self._value(y.shape, bias.dtype)  # type: ignore[union-attr]
        return [
            replace(maker, given=(bias, added), outputs=(both,)),
            replace(product, given=(both, *product.given[1:]), outputs=(moved,)),
            replace(_given(node, moved)),
        ]

    def _along_rows(self, node: Node) -> list[Node] | None:
        """A pooling of a matrix's rows, seen through views, is a mean over a group of columns."""
        x, window = node.tensors[0], window_of(node)
        source = x
        while (maker := self._only_for(source)) is not None and maker.operator in VIEWS:
            source = maker.tensors[0]
        if source is x or len(source.shape) != 2 or x.shape[-1] != source.shape[1]:
            return None
        if any(extent != 1 for extent in window[:-1]) or x.shape[-1] % window[-1]:
            return None
        if not self._linear(source):
            return None
        shape = (source.shape[0], source.shape[1] // window[-1], window[-1])
        grouped, mean = self._value(shape, x.dtype), self._value((*shape[:2], 1), x.dtype)
        return [
            Node("view", "default", (source, shape), {}, (grouped,)),
            Node("mean", "dim", (grouped, (2,), True), {}, (mean,)),
            Node("view", "default", (mean, node.output.shape), {}, (node.output,)),
        ]

    def _pool(self, node: Node) -> list[Node] | None:
        x = node.tensors[0]
        maker = self._only_for(x)
        if maker is None or not self._linear(x):
            return None
        if maker.operator != "convolution":
            rank = len(x.shape)
            return self._before(node, maker, range(rank - POOLS[node.operator], rank))
        found = of_convolution(self._value, node, maker)
        self.swapped = self.swapped or found is not None
        return found


def _given(node: Node, value: Value) -> Node:
    return given_instead(node, lambda _: value)


def _dims(node: Node) -> tuple[int, ...]:
    given, rank = node.argument(1, "dim"), len(node.tensors[0].shape)
    dims = given if isinstance(given, tuple) else (given,)
    return tuple(sorted(dim % rank for dim in dims if isinstance(dim, int)))


def _simple(node: Node) -> bool:
    """Whether windows lie side by side, and each has as many elements."""
    count = POOLS[node.operator]
    window = window_of(node)
    stride = node.argument(2, "stride") or window
    padding = each(node.argument(3, "padding", 0), count)
    plain = not any(padding) and not node.argument(4, "ceil_mode", False)
    return plain and each(stride, count) == window and node.argument(6, "divisor_override") is None


def _still(value: Value, rank: int, dims: Sequence[int]) -> bool:
    """Whether a broadcast value is the same all along these dimensions."""
    padded = (1,) * (rank - len(value.shape)) + value.shape
    return all(padded[dim] == 1 for dim in dims)
