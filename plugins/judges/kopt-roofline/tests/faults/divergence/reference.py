"""The geometric series of the elements that are flagged; the others as they are."""

import torch


def reference(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return torch.where(flag, (1 - x**512) / (1 - x), x)
