# /// kopt-problem
# [reference]
# function = "triangular_product"
# [inputs.a]
# shape = ["size", "size"]
# dtype = "float32"
# [inputs.b]
# shape = ["size", "size"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# size = 4096
# [[workloads]]
# name = "odd"
# size = 3001
# [[workloads]]
# name = "prime"
# size = 2003
# [[workloads]]
# name = "larger"
# size = 6144
# ///
"""The lower triangle of a product."""

import torch


def triangular_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(a @ b)
