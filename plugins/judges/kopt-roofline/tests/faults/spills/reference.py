"""48 steps of smoothing along the first axis, which is a ring."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    for _ in range(48):
        x = 0.5 * (x + x.roll(1, 0))
    return x
