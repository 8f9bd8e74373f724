"""Sum over one dimension or several adjacent ones, kept or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters import cpu, cuda_rows, gpu
from kopt_starters.expression import Expression, Leaf, Reduce
from kopt_starters.operator import Match, Operator, Structure
from kopt_starters.pattern import adjacent, is_argument, kept

if TYPE_CHECKING:
    from kopt_starters.operator import Arguments


def match(expression: Expression, arguments: Arguments) -> Match | None:
    """Return how ``expression`` is a sum, or None."""
    match expression:
        case Reduce(kind="sum", source=Leaf() as x, dims=dims, shape=shape):
            if not is_argument(x, arguments) or not adjacent(dims):
                return None
            dropped = tuple(e for dim, e in enumerate(x.shape) if dim not in dims)
            if shape in (dropped, kept(x.shape, dims)):
                return Match(x.name, dims[0], dims[-1], keep=shape != dropped)
    return None


OPERATOR = Operator(
    name="sum",
    parameters=(),
    match=match,
    structures=(
        Structure(
            "cpp", "sum_split.cpp", "all threads share a row", cpu.few_rows, cpu.shared_sum_knobs
        ),
        Structure("cpp", "sum_rows.cpp", "one thread per row", cpu.rows, cpu.sum_knobs),
        Structure(
            "cpp", "sum_columns_split.cpp", "threads share the strided dimension",
            cpu.few_columns, cpu.column_sum_knobs,
        ),
        Structure(
            "cpp", "sum_columns.cpp", "a thread adds up neighbouring columns",
            cpu.columns, cpu.column_sum_knobs,
        ),
        *cuda_rows.SUM_STRUCTURES,
        *gpu.SUM_STRUCTURES,
    ),
)  # fmt: skip
