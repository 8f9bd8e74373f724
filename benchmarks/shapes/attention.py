# /// kopt-problem
# [reference]
# function = "attention"
# [inputs.q]
# shape = ["batch", "heads", "length", "width"]
# dtype = "float16"
# [inputs.k]
# shape = ["batch", "heads", "length", "width"]
# dtype = "float16"
# [inputs.v]
# shape = ["batch", "heads", "length", "width"]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# batch = 8
# heads = 16
# length = 2048
# width = 64
# [[workloads]]
# name = "odd"
# batch = 3
# heads = 13
# length = 1999
# width = 64
# [[workloads]]
# name = "prime"
# batch = 2
# heads = 7
# length = 4093
# width = 128
# [[workloads]]
# name = "larger"
# batch = 16
# heads = 32
# length = 2048
# width = 128
# ///
"""Scaled dot-product attention."""

import torch
import torch.nn.functional as functional


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v)
