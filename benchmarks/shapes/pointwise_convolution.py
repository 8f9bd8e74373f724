# /// kopt-problem
# [reference]
# function = "pointwise_convolution"
# [inputs.x]
# shape = ["images", "cin", "height", "width"]
# dtype = "float32"
# [inputs.weight]
# shape = ["cout", "cin", 1, 1]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 16
# cin = 64
# cout = 128
# height = 512
# width = 512
# [[workloads]]
# name = "odd"
# images = 5
# cin = 63
# cout = 127
# height = 253
# width = 255
# [[workloads]]
# name = "prime"
# images = 3
# cin = 61
# cout = 113
# height = 251
# width = 257
# [[workloads]]
# name = "larger"
# images = 16
# cin = 128
# cout = 256
# height = 384
# width = 384
# ///
"""A convolution of single pixels."""

import torch
import torch.nn.functional as functional


def pointwise_convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, weight)
