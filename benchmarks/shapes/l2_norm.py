# /// kopt-problem
# [reference]
# function = "l2_norm"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 16384
# cols = 16384
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 8191
# [[workloads]]
# name = "prime"
# rows = 2003
# cols = 40009
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 20480
# ///
"""Rows over their Euclidean norms."""

import torch


def l2_norm(x: torch.Tensor) -> torch.Tensor:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
