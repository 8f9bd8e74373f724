# /// kopt-problem
# [reference]
# function = "rotary_embedding"
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
# name = "tuned"
# batch = 2
# heads = 32
# length = 4096
# width = 128
# [[workloads]]
# name = "odd"
# batch = 3
# heads = 13
# length = 4095
# width = 96
# [[workloads]]
# name = "prime"
# batch = 2
# heads = 7
# length = 4093
# width = 64
# [[workloads]]
# name = "larger"
# batch = 4
# heads = 32
# length = 8192
# width = 128
# ///
"""Rotary position embedding: the halves of each vector, turned by its position."""

import torch


def rotary_embedding(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
