# /// kopt-problem
# [reference]
# function = "depthwise_convolution"
# [inputs.x]
# shape = ["images", "channels", "height", "width"]
# dtype = "float32"
# [inputs.weight]
# shape = ["channels", 1, 3, 3]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 16
# channels = 64
# height = 512
# width = 512
# [[workloads]]
# name = "odd"
# images = 7
# channels = 63
# height = 509
# width = 511
# [[workloads]]
# name = "prime"
# images = 3
# channels = 61
# height = 1021
# width = 769
# [[workloads]]
# name = "larger"
# images = 32
# channels = 128
# height = 384
# width = 384
# ///
"""Convolution of each channel by itself, 3 x 3."""

import torch
import torch.nn.functional as functional


def depthwise_convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, weight, groups=x.shape[1])
