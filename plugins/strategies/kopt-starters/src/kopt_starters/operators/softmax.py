"""Softmax over one dimension, the last or another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters import cpu, cuda_rows, gpu
from kopt_starters.expression import Apply, Expression, Leaf, Named, Product, Reduce, total
from kopt_starters.operator import Match, Operator, Structure
from kopt_starters.pattern import is_argument, lines_up

if TYPE_CHECKING:
    from kopt_starters.operator import Arguments


def match(expression: Expression, arguments: Arguments) -> Match | None:
    """Return how ``expression`` is a softmax, or None."""
    match expression:
        case Named(operator="softmax", source=Leaf() as x, dims=(dim,)):
            pass
        case Product(factors=(Apply() as one, Apply() as other), scale=1.0):
            power, scale = (one, other) if one.function == "exp" else (other, one)
            found = _by_hand(power, scale)
            if found is None:
                return None
            x, dim = found
        case _:
            return None
    return Match(x.name, dim, dim) if is_argument(x, arguments) else None


def _by_hand(power: Apply, scale: Apply) -> tuple[Leaf, int] | None:
    """Take ``exp(x - max(x)) / sum(exp(x - max(x)))``, or that without max, apart."""
    match power, scale:
        case (
            Apply(function="exp", source=shifted),
            Apply(function="inverse", source=Reduce(kind="sum", dims=(dim,)) as sums),
        ) if sums.source == power and lines_up(sums):
            x = _unshifted(shifted, dim)
            return (x, dim) if x is not None else None
    return None


def _unshifted(value: Expression, dim: int) -> Leaf | None:
    """Return x of ``x`` or of ``x - max(x)`` over ``dim``."""
    if isinstance(value, Leaf):
        return value
    for _, term in getattr(value, "terms", ()):
        match term:
            case Reduce(kind="max", source=Leaf() as x, dims=(found,)) if found == dim:
                same = total((1.0, x), (-1.0, term)) == value
                return x if same and lines_up(term) else None
    return None


OPERATOR = Operator(
    name="softmax",
    parameters=(),
    match=match,
    structures=(
        Structure(
            "cpp", "softmax_split.cpp", "all threads share a row",
            cpu.few_rows, cpu.shared_row_knobs,
        ),
        Structure(
            "cpp", "softmax_rows.cpp", "one read, exponentials stay in cache",
            cpu.rows, cpu.row_knobs,
        ),
        Structure(
            "cpp", "softmax_columns.cpp", "tiles of columns stay in cache",
            cpu.columns, cpu.column_knobs,
        ),
        *cuda_rows.row_structures("softmax"),
        *gpu.row_structures("softmax"),
        *gpu.column_structures("softmax"),
    ),
)  # fmt: skip
