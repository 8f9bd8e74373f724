# /// kopt-problem
# [reference]
# function = "group_norm"
# [inputs.x]
# shape = ["images", "channels", "height", "width"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# images = 32
# channels = 64
# height = 256
# width = 256
# [[workloads]]
# name = "odd"
# images = 7
# channels = 56
# height = 127
# width = 129
# [[workloads]]
# name = "prime"
# images = 5
# channels = 88
# height = 211
# width = 199
# [[workloads]]
# name = "larger"
# images = 64
# channels = 64
# height = 384
# width = 320
# ///
"""Group norm without affine."""

import torch
import torch.nn.functional as functional


def group_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x, 8)
