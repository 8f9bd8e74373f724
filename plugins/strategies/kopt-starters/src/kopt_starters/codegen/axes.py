"""Coordinates of tensors: axes that are split where a reshape splits them, and strides over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from kopt_starters.graph import Node, Value


class NotCoveredError(Exception):
    """A graph does something that is not element-wise, or not known here."""


@dataclass(eq=False)
class Axis:
    """A range of coordinates; where a reshape splits it, it has parts, the outer one first."""

    extent: int
    parts: tuple[Axis, ...] = ()

    def leaves(self) -> tuple[Axis, ...]:
        """What it was split into; itself where it was not."""
        return tuple(leaf for part in self.parts for leaf in part.leaves()) or (self,)


Places: TypeAlias = tuple[tuple[Axis, ...], ...]
"""For each dimension of a tensor, the axes that together are its coordinate, outer ones first.

A dimension that was broadcast, or has one element, has none.
"""
Strides: TypeAlias = Mapping[Axis, int]
"""How far an axis moves in memory; axes that are not there do not move it at all."""


def fresh(shape: Sequence[int]) -> Places:
    """Return new axes for a tensor."""
    return tuple((Axis(extent),) if extent != 1 else () for extent in shape)


def leaves(places: Places) -> Places:
    """Return the same places with split axes replaced by their parts."""
    return tuple(tuple(leaf for axis in dim for leaf in axis.leaves()) for dim in places)


def flat(places: Places) -> list[Axis]:
    """Return all axes in row-major order."""
    return [axis for dim in leaves(places) for axis in dim]


def refit(axes: Sequence[Axis], shape: Sequence[int]) -> Places:
    """Lay axes out over another shape of as many elements, splitting them where that is needed.

    Raises NotCoveredError where a boundary of the shape cuts an axis unevenly.
    """
    left = [leaf for axis in axes for leaf in axis.leaves()]
    if prod(axis.extent for axis in left) != prod(shape) or 0 in shape:
        raise NotCoveredError("a reshape of other extents")
    places = [_take(left, extent) for extent in reversed(shape)]
    return tuple(reversed(places))


def _take(left: list[Axis], wanted: int) -> tuple[Axis, ...]:
    taken: list[Axis] = []
    while wanted > 1:
        axis = left.pop()
        if wanted % axis.extent == 0:
            wanted //= axis.extent
        elif axis.extent % wanted == 0:
            axis.parts = (Axis(axis.extent // wanted), Axis(wanted))
            left.append(axis.parts[0])
            axis, wanted = axis.parts[1], 1
        else:
            raise NotCoveredError("a reshape across dimensions")
        taken.append(axis)
    return tuple(reversed(taken))


def broadcast(places: Places, shape: Sequence[int]) -> Places:
    """Return where an operand of this shape is read, given the places of what it is broadcast to."""
    inner = places[len(places) - len(shape) :] if shape else ()
    return tuple(() if extent == 1 else dim for extent, dim in zip(shape, inner, strict=True))


def strides_of(places: Places, shape: Sequence[int]) -> dict[Axis, int]:
    """Return how each axis moves in a contiguous tensor of this shape."""
    found: dict[Axis, int] = {}
    step = 1
    for dim, extent in zip(reversed(leaves(places)), reversed(shape), strict=True):
        inner = step
        for axis in reversed(dim):
            found[axis] = found.get(axis, 0) + inner
            inner *= axis.extent
        step *= extent
    return found


def merged(axes: Sequence[Axis], accesses: Sequence[Strides]) -> list[tuple[Axis, ...]]:
    """Group neighbouring axes that every access walks as if they were one."""
    groups: list[list[Axis]] = []
    for axis in axes:
        before = groups[-1][-1] if groups else None
        if before is not None and all(
            strides.get(before, 0) == strides.get(axis, 0) * axis.extent for strides in accesses
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return [tuple(group) for group in groups]


SAME = frozenset({"alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy"})
_RESHAPES = frozenset(
    {"view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "flatten"}
)
MOVES = SAME | _RESHAPES | {"expand", "permute", "transpose", "t", "repeat"}
"""Operators that only move elements."""


def before_move(node: Node, places: Places) -> Places:
    """Return where a move's input is read, given the places of its output."""
    (source, *_) = node.tensors
    rank = len(source.shape)
    if node.operator in SAME:
        return places
    if node.operator in _RESHAPES:
        return refit(flat(places), source.shape)
    if node.operator == "expand":
        return broadcast(places, source.shape)
    if node.operator == "repeat":
        return _before_repeat(source, places)
    order = list(range(rank))
    if node.operator == "permute":
        dims = node.argument(1, "dims")
        order = [int(dim) % rank for dim in dims if isinstance(dim, int)]  # type: ignore[union-attr]
    elif rank > 1:
        first, second = (0, 1) if node.operator == "t" else (node.given[1], node.given[2])
        assert isinstance(first, int) and isinstance(second, int)
        order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    found = dict(zip(order, places, strict=True))
    return tuple(found[dim] for dim in range(rank))


def _before_repeat(source: Value, places: Places) -> Places:
    inner = places[len(places) - len(source.shape) :] if source.shape else ()
    found = []
    for dim, extent in zip(inner, source.shape, strict=True):
        times = prod(axis.extent for axis in dim) // extent if extent else 1
        found.append(refit(dim, (times, extent))[1])
    return tuple(found)
