"""A sum of 64 exponentials of each element."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    return sum(torch.exp(x * (step / 32)) for step in range(1, 65))
