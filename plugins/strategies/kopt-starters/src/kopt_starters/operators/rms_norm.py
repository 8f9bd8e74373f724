"""RMS norm: ``x * rsqrt(mean(x ** 2) + eps) * weight``, over the last or other dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters import cpu, cuda_rows, gpu
from kopt_starters.expression import Apply, Expression, Leaf, Named, Product, Reduce, Total
from kopt_starters.operator import Match, Operator, Structure
from kopt_starters.pattern import adjacent, is_argument, lines_up, runs_along

if TYPE_CHECKING:
    from kopt_starters.operator import Arguments

_FLOAT32_EPSILON = 2.0**-23
"""PyTorch's default for ``eps=None``, which it takes from the type that it computes in."""


def match(expression: Expression, arguments: Arguments) -> Match | None:
    """Return how ``expression`` is an RMS norm, or None."""
    match expression:
        case Named(operator="rms_norm", source=Leaf() as x, dims=dims, weight=weight, eps=eps):
            eps = _FLOAT32_EPSILON if eps is None else eps
        case Product(factors=factors, scale=1.0):
            found = _by_hand(factors)
            if found is None:
                return None
            x, dims, weight, eps = found
        case _:
            return None
    if not is_argument(x, arguments) or not adjacent(dims):
        return None
    if weight is not None and not runs_along(weight, x.shape, dims):
        return None
    name = weight.name if isinstance(weight, Leaf) else None
    return Match(x.name, dims[0], dims[-1], weight=name, eps=eps)


def _by_hand(
    factors: tuple[Expression, ...],
) -> tuple[Leaf, tuple[int, ...], Expression | None, float] | None:
    """Take ``x * rsqrt(mean(x * x) + eps)``, or that with one more factor, apart."""
    rest = list(factors)
    scales = [factor for factor in rest if isinstance(factor, Apply) and factor.function == "rsqrt"]
    if len(scales) != 1 or len(rest) not in (2, 3):
        return None
    rest.remove(scales[0])
    match scales[0].source:
        case Total(terms=((1.0, Reduce(kind="mean") as mean),), constant=eps):
            pass
        case Reduce(kind="mean") as mean:
            eps = 0.0
        case _:
            return None
    match mean.source:
        case Product(factors=(Leaf() as x, again), scale=1.0) if again == x and x in rest:
            rest.remove(x)
            return (x, mean.dims, rest[0] if rest else None, eps) if lines_up(mean) else None
    return None


OPERATOR = Operator(
    name="rms_norm",
    parameters=("weight", "eps"),
    match=match,
    structures=(
        Structure(
            "cpp", "rms_norm_split.cpp", "all threads share a row",
            cpu.few_rows, cpu.shared_row_knobs,
        ),
        Structure(
            "cpp", "rms_norm_rows.cpp", "one read, the row stays in cache", cpu.rows, cpu.row_knobs
        ),
        Structure(
            "cpp", "rms_norm_columns.cpp", "tiles of columns stay in cache",
            cpu.columns, cpu.column_knobs,
        ),
        *cuda_rows.row_structures("rms_norm"),
        *gpu.row_structures("rms_norm"),
        *gpu.column_structures("rms_norm"),
    ),
)  # fmt: skip
