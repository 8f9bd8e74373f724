# /// kopt-problem
# [reference]
# function = "average_pooling_3d"
# [inputs.x]
# shape = ["images", "channels", "depth", "height", "width"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 8
# channels = 32
# depth = 64
# height = 128
# width = 128
# [[workloads]]
# name = "odd"
# images = 3
# channels = 31
# depth = 33
# height = 65
# width = 67
# [[workloads]]
# name = "prime"
# images = 2
# channels = 37
# depth = 41
# height = 101
# width = 103
# [[workloads]]
# name = "larger"
# images = 16
# channels = 32
# depth = 96
# height = 128
# width = 160
# ///
"""Means of overlapping 3D windows."""

import torch
import torch.nn.functional as functional


def average_pooling_3d(x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool3d(x, 3, stride=2, padding=1)
