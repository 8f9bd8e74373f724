# /// kopt-problem
# [reference]
# function = "masked_running_sum"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [inputs.mask]
# shape = ["rows", "cols"]
# dtype = "bool"
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
"""Running sums of what a mask lets through."""

import torch


def masked_running_sum(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * mask, dim=1)
