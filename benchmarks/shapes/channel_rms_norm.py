# /// kopt-problem
# [reference]
# function = "channel_rms_norm"
# [inputs.x]
# shape = ["images", "channels", "height", "width"]
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
# height = 255
# width = 257
# [[workloads]]
# name = "prime"
# images = 13
# channels = 127
# height = 199
# width = 211
# [[workloads]]
# name = "larger"
# images = 64
# channels = 96
# height = 256
# width = 320
# ///
"""RMS norm over channels."""

import torch


def channel_rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)
