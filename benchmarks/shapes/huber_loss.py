# /// kopt-problem
# [reference]
# function = "huber_loss"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [inputs.y]
# shape = ["rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 16384
# cols = 16384
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 16381
# [[workloads]]
# name = "prime"
# rows = 104729
# cols = 523
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 20480
# ///
"""Smooth L1 loss."""

import torch
import torch.nn.functional as functional


def huber_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.smooth_l1_loss(x, y)
