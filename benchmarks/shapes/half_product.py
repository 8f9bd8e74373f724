# /// kopt-problem
# [reference]
# function = "half_product"
# [inputs.a]
# shape = ["m", "k"]
# dtype = "float16"
# [inputs.b]
# shape = ["k", "n"]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# m = 4096
# k = 4096
# n = 4096
# [[workloads]]
# name = "odd"
# m = 4095
# k = 4094
# n = 4097
# [[workloads]]
# name = "prime"
# m = 4001
# k = 2003
# n = 5003
# [[workloads]]
# name = "larger"
# m = 8192
# k = 16384
# n = 4096
# ///
"""Matrix product in float16."""

import torch


def half_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
