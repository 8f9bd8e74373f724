# /// kopt-problem
# [reference]
# function = "matrix_product"
# [inputs.a]
# shape = ["m", "k"]
# dtype = "float32"
# [inputs.b]
# shape = ["k", "n"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# m = 2048
# k = 8192
# n = 4096
# [[workloads]]
# name = "odd"
# m = 1537
# k = 2051
# n = 1023
# [[workloads]]
# name = "prime"
# m = 2003
# k = 4099
# n = 1009
# [[workloads]]
# name = "larger"
# m = 4096
# k = 16384
# n = 8192
# ///
"""Matrix product in float32."""

import torch


def matrix_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
