# /// kopt-problem
# [reference]
# function = "matrix_vector"
# [inputs.a]
# shape = ["rows", "cols"]
# dtype = "float16"
# [inputs.b]
# shape = ["cols", 1]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# rows = 2048
# cols = 262144
# [[workloads]]
# name = "odd"
# rows = 1023
# cols = 131071
# [[workloads]]
# name = "prime"
# rows = 1009
# cols = 200003
# [[workloads]]
# name = "larger"
# rows = 8192
# cols = 131072
# ///
"""A matrix times a vector."""

import torch


def matrix_vector(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
