"""Which float32 arithmetic PyTorch may use, by the problem's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt_torch.tensors import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kopt.model.problem import OperatorCall, Problem

_TF32_ERROR = 1e-6
"""Relative: what other differences between two ways of computing in float32 stay below."""


def apply_precision(problem: Problem) -> None:
    """Set TF32 for this process: PyTorch's defaults, never, or wherever possible."""
    policy = problem.tolerance.precision
    if policy == "reference":
        return
    torch.backends.cuda.matmul.allow_tf32 = policy == "tf32"
    torch.backends.cudnn.allow_tf32 = policy == "tf32"


def convolves_in_tf32(
    trace: Iterable[OperatorCall], results: list[Any], again: Callable[[], list[Any]]
) -> bool | None:
    """Return whether a reference's float32 convolutions were done in TF32; None: it has none.

    cuDNN is free to, by default, and does so for some shapes: it is told not to, and what changes
    is looked at. Where little of a rounding is left in the results, this says that there was none.

    :param results: what the reference gave, on the device.
    :param again: computes the same once more.
    """
    convolutions = {call.dtype for call in trace if call.name.startswith("aten.convolution")}
    if "float32" not in convolutions:
        return None
    if not torch.backends.cudnn.allow_tf32:
        return False
    torch.backends.cudnn.allow_tf32 = False
    try:
        exact = again()
    finally:
        torch.backends.cudnn.allow_tf32 = True
    return any(_apart(one, other) for one, other in zip(results, exact, strict=True))


def _apart(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not one.dtype.is_floating_point:
        return False
    off = total = 0.0
    for mine, right in pieces(one, other):
        here = right.double()
        off += float((mine.double() - here).square().nansum())
        total += float(here.square().nansum())
    return off > _TF32_ERROR**2 * total
