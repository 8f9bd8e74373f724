# /// kopt-problem
# [reference]
# function = "row_softmax"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# rows = 4096
# cols = 4096
# [[workloads]]
# name = "odd"
# rows = 4095
# cols = 4093
# [[workloads]]
# name = "prime"
# rows = 1009
# cols = 50257
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 8192
# ///
"""Softmax of each row."""

import torch


def row_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
