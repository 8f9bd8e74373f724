# /// kopt-problem
# [reference]
# function = "middle_sum"
# [inputs.x]
# shape = ["batch", "rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# batch = 16
# rows = 4096
# cols = 4095
# [[workloads]]
# name = "odd"
# batch = 11
# rows = 1023
# cols = 2047
# [[workloads]]
# name = "prime"
# batch = 3
# rows = 20011
# cols = 769
# [[workloads]]
# name = "larger"
# batch = 64
# rows = 8192
# cols = 1024
# ///
"""Sum over the middle axis."""

import torch


def middle_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=1, keepdim=True)
