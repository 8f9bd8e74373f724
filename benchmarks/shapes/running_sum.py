# /// kopt-problem
# [reference]
# function = "running_sum"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 8192
# cols = 32768
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 32767
# [[workloads]]
# name = "prime"
# rows = 1021
# cols = 100003
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 16384
# ///
"""Sums of all elements up to each, along rows."""

import torch


def running_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, dim=1)
