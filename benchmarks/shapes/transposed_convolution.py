# /// kopt-problem
# [reference]
# function = "transposed_convolution"
# [inputs.x]
# shape = ["images", "cin", "depth", "height", "width"]
# dtype = "float32"
# [inputs.weight]
# shape = ["cin", "cout", 3, 3, 3]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 8
# cin = 32
# cout = 32
# depth = 16
# height = 32
# width = 64
# [[workloads]]
# name = "odd"
# images = 3
# cin = 31
# cout = 33
# depth = 15
# height = 31
# width = 63
# [[workloads]]
# name = "prime"
# images = 5
# cin = 29
# cout = 37
# depth = 13
# height = 23
# width = 53
# [[workloads]]
# name = "larger"
# images = 16
# cin = 48
# cout = 64
# depth = 16
# height = 48
# width = 48
# ///
"""Transposed convolution in three dimensions, 3 x 3 x 3 with steps of 2."""

import torch
import torch.nn.functional as functional


def transposed_convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv_transpose3d(x, weight, stride=2, padding=1)
