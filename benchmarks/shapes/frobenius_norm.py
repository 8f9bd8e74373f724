# /// kopt-problem
# [reference]
# function = "frobenius_norm"
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
# cols = 16381
# [[workloads]]
# name = "prime"
# rows = 104729
# cols = 523
# [[workloads]]
# name = "larger"
# rows = 16384
# cols = 40960
# ///
"""Everything over its Euclidean norm."""

import torch


def frobenius_norm(x: torch.Tensor) -> torch.Tensor:
    return x / torch.linalg.vector_norm(x)
