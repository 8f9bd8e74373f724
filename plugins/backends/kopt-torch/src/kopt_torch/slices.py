"""Whether a reference may be run on slices of rows, where all of them at once take too much memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
