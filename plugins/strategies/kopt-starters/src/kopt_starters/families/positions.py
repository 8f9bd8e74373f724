"""What each position of a value's last dimension is, as signed products of arguments' elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kopt_starters.graph import Value

if TYPE_CHECKING:
    from kopt_starters.graph import Graph, Node

_WIDEST = 1024
_TERMS = 4


class Element(NamedTuple):
    """An argument's element: at which position, and which of its dimensions lead where."""

    name: str
    position: int
    kept: tuple[int | None, ...]
    """For each leading dimension of the value, the argument's own; None: it does not matter."""


Term: TypeAlias = tuple[int, tuple[Element, ...]]
Sum: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True)
class Rows:
    """A value as its leading extents and, for each position behind them, a sum of products."""

    lead: tuple[int, ...]
    tail: tuple[int, ...]
    """The last dimension, or two of them for pairs that are taken apart or put together."""
    sums: tuple[Sum, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole value."""
        return (*self.lead, *self.tail)


def positions(graph: Graph) -> list[Rows] | None:
    """Return what the results are; None where an operator is not understood."""
    values: dict[str, Rows] = {}
    for node in graph.nodes:
        for tensor in node.tensors:
            if tensor.name not in values and graph.producer(tensor) is None:
                if not tensor.shape or not 0 < tensor.shape[-1] <= _WIDEST:
                    return None
                values[tensor.name] = _argument(tensor)
        made = _made(node, values)
        if made is None or any(m.shape != o.shape for m, o in zip(made, node.outputs, strict=True)):
            return None
        values |= {output.name: each for output, each in zip(node.outputs, made, strict=True)}
    return [values[result.name] for result in graph.results]


def _argument(tensor: Value) -> Rows:
    kept = tuple(range(len(tensor.shape) - 1))
    sums = tuple(((1, (Element(tensor.name, p, kept),)),) for p in range(tensor.shape[-1]))
    return Rows(tensor.shape[:-1], tensor.shape[-1:], sums)


def _made(node: Node, values: dict[str, Rows]) -> list[Rows] | None:
    first = node.given[0] if node.given else None
    if isinstance(first, tuple):
        parts = [values[each.name] for each in first if isinstance(each, Value)]
        found = _put_together(node, parts) if len(parts) == len(first) else None
    elif not isinstance(first, Value):
        return None
    elif node.operator in {"mul", "add", "sub"}:
        other = node.argument(1, "other")
        if not isinstance(other, Value) or node.argument(2, "alpha", 1) != 1:
            return None
        found = _combined(node.operator, values[first.name], values[other.name])
    elif node.operator in {"split", "unbind"}:
        return _apart(node, values[first.name])
    else:
        found = _single(node, values[first.name])
    return None if found is None else [found]


def _single(node: Node, x: Rows) -> Rows | None:
    operator = node.operator
    if operator == "neg":
        return Rows(x.lead, x.tail, tuple(_scaled(each, -1) for each in x.sums))
    if operator in {"clone", "alias", "detach"}:
        return x
    if operator in {"view", "reshape", "_unsafe_view", "unsqueeze", "expand"}:
        return _reshaped(x, node.output.shape, operator == "expand")
    return _taken(node, x) if operator in {"select", "slice"} else None


def _taken(node: Node, x: Rows) -> Rows | None:
    """Return a part of the last dimension; all of another one."""
    dim, step = node.argument(1, "dim", 0), node.argument(4, "step", 1)
    start, stop = node.argument(2, "start"), node.argument(3, "end")
    if node.operator == "slice" and node.output.shape == x.shape and step == 1:
        return x
    if not isinstance(dim, int) or dim % len(x.shape) != len(x.shape) - 1:
        return None
    if node.operator == "select":
        return _picked(x, start) if isinstance(start, int) and len(x.tail) == 2 else None
    if not isinstance(start, int | None) or not isinstance(stop, int | None):
        return None
    if len(x.tail) != 1 or not isinstance(step, int):
        return None
    sums = x.sums[start:stop:step]
    return Rows(x.lead, (len(sums),), sums)


def _picked(x: Rows, index: int) -> Rows:
    sums = x.sums[index % x.tail[1] :: x.tail[1]]
    return Rows(x.lead, (len(sums),), sums)


def _apart(node: Node, x: Rows) -> list[Rows] | None:
    dim = node.argument(2 if node.operator == "split" else 1, "dim", 0)
    if not isinstance(dim, int) or dim % len(x.shape) != len(x.shape) - 1:
        return None
    if node.operator == "unbind":
        return [_picked(x, i) for i in range(x.tail[1])] if len(x.tail) == 2 else None
    size = node.argument(1, "split_size")
    if not isinstance(size, int) or len(x.tail) != 1:
        return None
    parts = [x.sums[start : start + size] for start in range(0, x.tail[0], size)]
    return [Rows(x.lead, (len(part),), part) for part in parts]


def _put_together(node: Node, parts: Sequence[Rows]) -> Rows | None:
    dim = node.argument(1, "dim", 0)
    flat = all(len(part.tail) == 1 and part.lead == parts[0].lead for part in parts)
    if not isinstance(dim, int) or not parts or not flat:
        return None
    lead, rank = parts[0].lead, len(node.output.shape)
    if dim % rank != rank - 1:
        return None
    if node.operator == "cat":
        sums = tuple(each for part in parts for each in part.sums)
        return Rows(lead, (len(sums),), sums)
    if node.operator == "stack" and len({part.tail for part in parts}) == 1:
        sums = tuple(each for pair in zip(*(p.sums for p in parts), strict=True) for each in pair)
        return Rows(lead, (parts[0].tail[0], len(parts)), sums)
    return None


def _reshaped(x: Rows, shape: tuple[int, ...], expands: bool) -> Rows | None:
    """Return x with other leading ones, expanded, or with its tail split in two or merged."""
    width = len(x.sums)
    tail = shape[-1:] if shape[-1] == width else shape[-2:]
    lead = shape[: len(shape) - len(tail)]
    if prod(tail) != width:
        return None
    if lead == x.lead:
        return Rows(lead, tail, x.sums)
    if expands:
        missing = len(lead) - len(x.lead)
        kept: list[int | None] = [None] * missing + list(range(len(x.lead)))
    else:
        real = [n for n, extent in enumerate(x.lead) if extent != 1]
        if [x.lead[n] for n in real] != [extent for extent in lead if extent != 1]:
            return None
        places = iter(real)
        kept = [None if extent == 1 else next(places) for extent in lead]
    return Rows(lead, tail, tuple(_moved(each, kept) for each in x.sums))


def _moved(total: Sum, kept: Sequence[int | None]) -> Sum:
    def moved(each: Element) -> Element:
        return each._replace(kept=tuple(None if n is None else each.kept[n] for n in kept))

    return tuple((sign, tuple(map(moved, factors))) for sign, factors in total)


def _scaled(total: Sum, sign: int) -> Sum:
    return tuple((sign * each, factors) for each, factors in total)


def _combined(operator: str, a: Rows, b: Rows) -> Rows | None:
    if len(a.tail) != 1 or a.tail != b.tail:
        return None
    rank = max(len(a.lead), len(b.lead))
    a, b = _padded(a, rank), _padded(b, rank)
    lead = tuple(map(max, a.lead, b.lead))
    if operator != "mul":
        sign = -1 if operator == "sub" else 1
        sums = [(*m, *_scaled(n, sign)) for m, n in zip(a.sums, b.sums, strict=True)]
    else:
        sums = [_product(m, n) for m, n in zip(a.sums, b.sums, strict=True)]
    if any(len(each) > _TERMS for each in sums):
        return None
    return Rows(lead, a.tail, tuple(sums))


def _product(a: Sum, b: Sum) -> Sum:
    return tuple((s * t, (*f, *g)) for s, f in a for t, g in b)


def _padded(x: Rows, rank: int) -> Rows:
    missing = rank - len(x.lead)
    kept = [*[None] * missing, *range(len(x.lead))]
    return Rows((*[1] * missing, *x.lead), x.tail, tuple(_moved(each, kept) for each in x.sums))
