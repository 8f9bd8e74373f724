"""Where the elements of a value lie in a tensor: each axis as parts with strides, through views."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_starters.graph import Node


@dataclass(frozen=True)
class Part:
    """``extent`` positions that lie ``stride`` elements apart."""

    extent: int
    stride: int
    dim: int | None = None
    """The tensor's dimension that this is; None where it is a piece of one, or repeated."""
    group: str = ""
    """Of a product's result: the group of axes that this belongs to."""


Axis: TypeAlias = tuple[Part, ...]
"""Parts from outer to inner; none for an axis of one position."""
Axes: TypeAlias = tuple[Axis, ...]


def of_tensor(shape: Sequence[int]) -> Axes:
    """Return the axes of a contiguous tensor."""
    found = [
        (Part(extent, prod(shape[dim + 1 :]), dim),) if extent != 1 else ()
        for dim, extent in enumerate(shape)
    ]
    return tuple(found)


def extent(axis: Axis) -> int:
    """Return the number of positions of an axis."""
    return prod(part.extent for part in axis)


def reshaped(axes: Axes, shape: Sequence[int]) -> Axes | None:
    """Return the axes of another shape of the same elements; None where a part would not divide."""
    rest = [part for axis in axes for part in axis]
    found: list[Axis] = []
    for size in shape:
        taken = _take(rest, size)
        if taken is None:
            return None
        found.append(taken)
    return None if rest else tuple(found)


def _take(rest: list[Part], size: int) -> Axis | None:
    """Take ``size`` positions from the front, splitting a part where that has to be."""
    taken: list[Part] = []
    while size > 1 and rest:
        part = rest.pop(0)
        if size % part.extent == 0:
            taken.append(part)
            size //= part.extent
        elif part.extent % size == 0:
            inner = part.extent // size
            taken.append(Part(size, part.stride * inner, None, part.group))
            rest.insert(0, Part(inner, part.stride, None, part.group))
            size = 1
        else:
            return None
    return tuple(taken) if size == 1 else None


_RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten"})
_COPIES = frozenset({"clone", "contiguous", "alias", "detach"})
VIEWS = _RESHAPES | _COPIES | {"t", "transpose", "permute", "expand"}
"""Operators that only say where elements lie."""


def viewed(node: Node, axes: Axes) -> Axes | None:
    """Return the axes after one of VIEWS; None where they cannot be told."""
    if node.operator in _RESHAPES | _COPIES:
        return reshaped(axes, node.output.shape)
    if node.operator == "t":
        return axes[::-1]
    if node.operator == "expand":
        return _expanded(axes, node.output.shape)
    if node.operator == "permute":
        order = node.argument(1, "dims")
        return _permuted(axes, order) if isinstance(order, tuple) else None
    if node.operator == "transpose":
        first, second = node.argument(1, "dim0"), node.argument(2, "dim1")
        if not isinstance(first, int) or not isinstance(second, int):
            return None
        dims = list(range(len(axes)))
        dims[first], dims[second] = dims[second], dims[first]
        return _permuted(axes, dims)
    return None


def _permuted(axes: Axes, order: Sequence[object]) -> Axes:
    return tuple(axes[dim] for dim in order if isinstance(dim, int))


def _expanded(axes: Axes, shape: Sequence[int]) -> Axes:
    full = ((),) * (len(shape) - len(axes)) + axes
    return tuple(
        (Part(size, 0),) if extent(axis) != size else axis
        for axis, size in zip(full, shape, strict=True)
    )


@dataclass(frozen=True)
class Step:
    """A level of a loop over a group of axes, with its stride in each tensor."""

    extent: int
    strides: tuple[int, ...]


def aligned(axes: Sequence[Axis]) -> tuple[Step, ...] | None:
    """Return one loop nest over axes of as many positions, outer to inner, as shallow as can be.

    None where their parts do not divide each other.
    """
    stacks = [list(axis) for axis in axes]
    found: list[Step] = []
    while all(stacks):
        inner = [stack.pop() for stack in stacks]
        size = min(part.extent for part in inner)
        if any(part.extent % size for part in inner):
            return None
        for stack, part in zip(stacks, inner, strict=True):
            if part.extent > size:
                stack.append(Part(part.extent // size, part.stride * size))
        _add(found, Step(size, tuple(part.stride for part in inner)))
    return None if any(stacks) else tuple(reversed(found))


def _add(found: list[Step], step: Step) -> None:
    """Put a level around those found, or make the outermost longer where strides allow it."""
    last = found[-1] if found else None
    if last and step.strides == tuple(stride * last.extent for stride in last.strides):
        found[-1] = Step(last.extent * step.extent, last.strides)
    else:
        found.append(step)
