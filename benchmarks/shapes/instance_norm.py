# /// kopt-problem
# [reference]
# function = "instance_norm"
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
# channels = 63
# height = 255
# width = 257
# [[workloads]]
# name = "prime"
# images = 5
# channels = 61
# height = 509
# width = 503
# [[workloads]]
# name = "larger"
# images = 64
# channels = 64
# height = 320
# width = 384
# ///
"""Instance norm without affine."""

import torch
import torch.nn.functional as functional


def instance_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.instance_norm(x)
