# /// kopt-problem
# [reference]
# function = "max_pooling"
# [inputs.x]
# shape = ["images", "channels", "height", "width"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 8
# channels = 64
# height = 512
# width = 512
# [[workloads]]
# name = "odd"
# images = 5
# channels = 37
# height = 509
# width = 499
# [[workloads]]
# name = "prime"
# images = 3
# channels = 61
# height = 1021
# width = 1019
# [[workloads]]
# name = "larger"
# images = 16
# channels = 96
# height = 384
# width = 640
# ///
"""Max pooling, 4 x 4 with steps of 1."""

import torch
import torch.nn.functional as functional


def max_pooling(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 4, stride=1, padding=1)
