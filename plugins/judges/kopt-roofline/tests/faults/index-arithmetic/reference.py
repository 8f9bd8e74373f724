"""A tensor of eight axes with the first six in reverse order."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.permute(5, 4, 3, 2, 1, 0, 6, 7).contiguous()
