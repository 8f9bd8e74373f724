"""Which float32 arithmetic PyTorch may use, by the problem's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kopt.model.problem import Problem


def apply_precision(problem: Problem) -> None:
    """Set TF32 for this process: PyTorch's defaults, never, or wherever possible."""
    policy = problem.tolerance.precision
    if policy == "reference":
        return
    torch.backends.cuda.matmul.allow_tf32 = policy == "tf32"
    torch.backends.cudnn.allow_tf32 = policy == "tf32"
