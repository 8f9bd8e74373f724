# /// kopt-problem
# [reference]
# function = "tall_product"
# [inputs.a]
# shape = ["rows", "depth"]
# dtype = "float32"
# [inputs.b]
# shape = ["depth", "columns"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 16384
# depth = 32
# columns = 8192
# [[workloads]]
# name = "odd"
# rows = 12289
# depth = 33
# columns = 4095
# [[workloads]]
# name = "prime"
# rows = 10007
# depth = 31
# columns = 5003
# [[workloads]]
# name = "larger"
# rows = 32768
# depth = 64
# columns = 16384
# ///
"""A product with a shallow depth."""

import torch


def tall_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
