"""Questions that several operators' patterns ask about expressions and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.expression import Expression, Leaf, Reduce

if TYPE_CHECKING:
    from kopt_starters.expression import Shape
    from kopt_starters.operator import Arguments


def is_argument(value: Expression, arguments: Arguments) -> bool:
    """Whether a value is an argument in its own shape."""
    return isinstance(value, Leaf) and arguments.get(value.name) == value.shape


def adjacent(dims: tuple[int, ...]) -> bool:
    """Whether dimensions follow one another without a gap."""
    return bool(dims) and dims == tuple(range(dims[0], dims[-1] + 1))


def kept(shape: Shape, dims: tuple[int, ...]) -> Shape:
    """Return a shape after a reduction that keeps ``dims`` with extent one."""
    return tuple(1 if dim in dims else extent for dim, extent in enumerate(shape))


def lines_up(reduced: Reduce) -> bool:
    """Whether a statistic broadcasts back onto the elements that it was computed from."""
    shape = reduced.source.shape
    padded = (1,) * (len(shape) - len(reduced.shape)) + reduced.shape
    return padded == kept(shape, reduced.dims)


def runs_along(value: Expression, shape: Shape, dims: tuple[int, ...]) -> bool:
    """Whether a parameter has one element per element of ``dims`` and broadcasts elsewhere."""
    if not isinstance(value, Leaf) or len(value.shape) > len(shape):
        return False
    padded = (1,) * (len(shape) - len(value.shape)) + value.shape
    return padded == tuple(extent if dim in dims else 1 for dim, extent in enumerate(shape))
