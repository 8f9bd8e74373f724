# /// kopt-problem
# [reference]
# function = "divergence"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# distribution = "uniform"
# low = 0.1
# [inputs.y]
# shape = ["rows", "cols"]
# dtype = "float32"
# distribution = "uniform"
# low = 0.1
# [[workloads]]
# name = "tuned"
# rows = 16384
# cols = 8192
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 8191
# [[workloads]]
# name = "prime"
# rows = 2003
# cols = 20011
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 16384
# ///
"""Kullback-Leibler divergence of distributions."""

import torch
import torch.nn.functional as functional


def divergence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.kl_div(torch.log(x), y, reduction="batchmean")
