# /// kopt-problem
# [reference]
# function = "strided_convolution_1d"
# [inputs.x]
# shape = ["batch", "cin", "length"]
# dtype = "float32"
# [inputs.weight]
# shape = ["cout", "cin", 3]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# batch = 64
# cin = 64
# cout = 128
# length = 131072
# [[workloads]]
# name = "odd"
# batch = 31
# cin = 63
# cout = 127
# length = 32767
# [[workloads]]
# name = "prime"
# batch = 13
# cin = 61
# cout = 113
# length = 50021
# [[workloads]]
# name = "larger"
# batch = 64
# cin = 128
# cout = 192
# length = 131072
# ///
"""A dilated convolution of sequences with a stride."""

import torch
import torch.nn.functional as functional


def strided_convolution_1d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv1d(x, weight, stride=3, dilation=4)
