# /// kopt-problem
# [reference]
# function = "rotary_pairs"
# [inputs.x]
# shape = ["batch", "heads", "length", "width"]
# dtype = "float16"
# [inputs.cos]
# shape = ["length", "width // 2"]
# dtype = "float16"
# distribution = "uniform"
# low = -1.0
# [inputs.sin]
# shape = ["length", "width // 2"]
# dtype = "float16"
# distribution = "uniform"
# low = -1.0
# [[workloads]]
# name = "2x32x2048x128"
# batch = 2
# heads = 32
# length = 2048
# width = 128
# [[workloads]]
# name = "2x32x4096x128"
# batch = 2
# heads = 32
# length = 4096
# width = 128
# ///
"""Rotary position embedding of numbers beside each other, which are turned by their position."""

import torch


def rotary_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, other = x[..., ::2], x[..., 1::2]
    return torch.stack((one * cos - other * sin, one * sin + other * cos), dim=-1).flatten(-2)
