"""Whether a reference may be run on slices of rows, where all of them at once take too much memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from kopt.errors import ProblemError
from kopt_torch.likeness import close
from kopt_torch.structure import flatten

if TYPE_CHECKING:
    from kopt.model.problem import Problem
    from kopt_torch.drawing import Draw
    from kopt_torch.source import ReferenceFunction

CHUNK_BYTES = 2 << 30
"""Float64 bytes of inputs and outputs above which the oracle works on slices of rows."""


def take_rows(value: Any, rows: slice) -> Any:
    """Return these rows of a tensor; what has no rows stays."""
    return value[rows] if isinstance(value, torch.Tensor) and value.dim() else value


def count_slices(
    problem: Problem,
    function: ReferenceFunction,
    drawn: Draw,
    state: dict[str, torch.Tensor],
    leaves: list[torch.Tensor],
) -> int:
    """Return how many slices along the first dimension: 1 unless large and rows are independent.

    Rows count as independent where the reference gives the same on a slice as on the whole.
    """
    tensors = [v for v in drawn.values if isinstance(v, torch.Tensor) and v.dim()]
    count = -(-sum(t.numel() * 8 for t in [*tensors, *leaves]) // CHUNK_BYTES)
    extents = {leaf.shape[0] if leaf.dim() else 0 for leaf in leaves}
    if count <= 1 or len(extents) != 1 or problem.mutates or drawn.keywords:
        return 1
    extent = extents.pop()
    count = min(count, extent)
    if count <= 1 or not tensors or any(t.shape[0] != extent for t in tensors):
        return 1
    step = -(-extent // count)
    # Both ends: what runs along the dimension (a cumulative sum) is right at one of them.
    ends = slice(0, step), slice((extent - 1) // step * step, extent)
    independent = all(_same_on(rows, function, drawn, state, leaves) for rows in ends)
    return count if independent else 1


def _same_on(
    rows: slice,
    function: ReferenceFunction,
    drawn: Draw,
    state: dict[str, torch.Tensor],
    leaves: list[torch.Tensor],
) -> bool:
    """Whether the reference gives on these rows of its arguments what it gives on all."""
    try:
        result = function([take_rows(v, rows) for v in drawn.values], {}, state)
    except ProblemError:  # as where the other operand is a square matrix, or a vector
        return False
    parts, _ = flatten(result)
    return len(parts) == len(leaves) and all(
        close(whole[rows], part) for whole, part in zip(leaves, parts, strict=True)
    )


_FEW_ELEMENTS = 1 << 22
_EXACT = 1e-11
"""Relative to the parts: more than float64 loses by another order of summation."""
_NATIVE = 2e-5
"""The same of float32."""


class Terms(NamedTuple):
    """How numbers that are reduced from all rows are put together of those of slices."""

    how: Literal["mean", "sum"]
    parts: int
    which: tuple[int, ...]
    """Arguments that have those rows, by position."""

    def slices(self, values: Sequence[Any]) -> list[slice]:
        """Return the rows of each part."""
        extent = values[self.which[0]].shape[0]
        step = -(-extent // self.parts)
        return [slice(i, min(i + step, extent)) for i in range(0, extent, step)]

    def take(self, values: Sequence[Any], rows: slice) -> list[Any]:
        """Return the arguments with these rows only."""
        return [take_rows(v, rows) if i in self.which else v for i, v in enumerate(values)]

    def together(
        self, parts: Sequence[list[torch.Tensor]], rows: Sequence[slice]
    ) -> list[torch.Tensor]:
        """Return, in float64, what slices give together: weighted by their rows, or added up."""
        total = sum(each.stop - each.start for each in rows)
        mean = self.how == "mean"
        weights = [(each.stop - each.start) / total if mean else 1.0 for each in rows]
        return [
            sum(part.double() * weight for part, weight in zip(column, weights, strict=True))
            for column in zip(*parts, strict=True)
        ]


def find_terms(
    problem: Problem,
    function: ReferenceFunction,
    drawn: Draw,
    state: dict[str, torch.Tensor],
    leaves: list[torch.Tensor],
) -> Terms | None:
    """Return how a large reference's scalars, as of a loss, are those of slices; None: not so.

    It has to hold exactly, in float64, on a few rows, and as far as float32 goes on all of them.
    """
    tensors = {i: v for i, v in enumerate(drawn.values) if isinstance(v, torch.Tensor) and v.dim()}
    elements = sum(t.numel() for t in tensors.values())
    parts = -(-8 * elements // CHUNK_BYTES)
    scalars = all(
        leaf.dim() == 0 and leaf.dtype in (torch.float32, torch.float64) for leaf in leaves
    )
    if parts <= 1 or not leaves or not scalars or problem.mutates or drawn.keywords:
        return None
    most = max(t.numel() for t in tensors.values())
    large = tuple(i for i, t in tensors.items() if 2 * t.numel() > most)
    extent = tensors[large[0]].shape[0]
    few = min(extent, max(3, _FEW_ELEMENTS * extent // elements))
    if few < 3 or any(tensors[i].shape[0] != extent for i in large):
        return None
    with_small = tuple(i for i, t in tensors.items() if t.shape[0] == extent)
    for which in dict.fromkeys((with_small, large)):
        for how in ("mean", "sum"):
            terms = Terms(how, min(parts, extent), which)
            if _hold(terms, few, function, drawn.values, state, leaves):
                return terms
    return None


def _hold(
    terms: Terms,
    few: int,
    function: ReferenceFunction,
    values: list[Any],
    state: dict[str, torch.Tensor],
    leaves: list[torch.Tensor],
) -> bool:
    def run(rows: slice, call: Callable[..., Any]) -> list[torch.Tensor]:
        return flatten(call(terms.take(values, rows), {}, state))[0]

    unequal = [slice(0, few // 3), slice(few // 3, few)]
    try:
        exact = [run(rows, function.in_float64) for rows in unequal]
        if not _same(terms, exact, unequal, run(slice(0, few), function.in_float64), _EXACT):
            return False
        rows = terms.slices(values)
        return _same(terms, [run(each, function) for each in rows], rows, leaves, _NATIVE)
    except ProblemError:  # as where the other operand has no such rows
        return False


def _same(
    terms: Terms,
    parts: list[list[torch.Tensor]],
    rows: list[slice],
    whole: list[torch.Tensor],
    limit: float,
) -> bool:
    """Whether parts give the whole, which is not zero: that would say nothing."""
    sizes = terms.together([[leaf.abs() for leaf in part] for part in parts], rows)
    return all(
        bool(wanted != 0) and bool((found - wanted.double()).abs() <= limit * size)
        for found, wanted, size in zip(terms.together(parts, rows), whole, sizes, strict=True)
    )
