"""16 steps in which each row moves half of the way to mean zero."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    for _ in range(16):
        x = x - 0.5 * x.mean(dim=1, keepdim=True)
    return x
