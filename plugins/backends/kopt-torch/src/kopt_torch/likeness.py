"""Whether results of a reference are alike: on a part and on all, now and again, before and after."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kopt_torch.checksum import checksum
from kopt_torch.tensors import pieces

_NOISE = 0.01
"""Part of the results' size by which two runs of a reference may differ (atomics, half types)."""


def close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two results are equal but for the order of their sums."""
    if not left.dtype.is_floating_point:
        return bool(torch.equal(left, right))
    return left.shape == right.shape and all(
        bool(torch.allclose(one, other, equal_nan=True)) for one, other in pieces(left, right)
    )


def alike(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Whether two runs on the same inputs gave the same, as far as sums in any order can."""
    return len(first) == len(second) and not any(
        _apart(one, other) for one, other in zip(first, second, strict=True)
    )


def _apart(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape:
        return True
    if not first.dtype.is_floating_point:
        return not bool(torch.equal(first, second))
    distance = total = 0.0
    for one, other in pieces(first, second):
        wide = one.double()
        distance += _square(wide - other.double())
        total += _square(wide)
    return distance > _NOISE**2 * total


def _square(values: torch.Tensor) -> float:
    """Return the sum of the squares of what is finite."""
    return float(values.nan_to_num(0.0, 0.0, 0.0).square_().sum())


def content(tree: Any) -> list[int]:
    """Checksums of every tensor in a nesting, whichever way it may be written to."""
    tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return [checksum(t.detach().contiguous().flatten().view(torch.uint8)) for t in tensors]
