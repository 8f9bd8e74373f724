# /// kopt-problem
# [reference]
# function = "convolution"
# [inputs.x]
# shape = ["images", "cin", "height", "width"]
# dtype = "float32"
# [inputs.weight]
# shape = ["cout", "cin", 3, 3]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 8
# cin = 32
# cout = 64
# height = 512
# width = 512
# [[workloads]]
# name = "odd"
# images = 5
# cin = 31
# cout = 63
# height = 509
# width = 503
# [[workloads]]
# name = "prime"
# images = 3
# cin = 67
# cout = 127
# height = 251
# width = 257
# [[workloads]]
# name = "larger"
# images = 16
# cin = 64
# cout = 128
# height = 320
# width = 480
# ///
"""Convolution, 3 x 3."""

import torch
import torch.nn.functional as functional


def convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, weight)
