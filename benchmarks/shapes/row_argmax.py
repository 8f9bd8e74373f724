# /// kopt-problem
# [reference]
# function = "row_argmax"
# [inputs.x]
# shape = ["batch", "rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# batch = 64
# rows = 2048
# cols = 4095
# [[workloads]]
# name = "odd"
# batch = 11
# rows = 1023
# cols = 2047
# [[workloads]]
# name = "prime"
# batch = 3
# rows = 4099
# cols = 1009
# [[workloads]]
# name = "larger"
# batch = 64
# rows = 4096
# cols = 4096
# ///
"""Where the largest element along the middle axis is."""

import torch


def row_argmax(x: torch.Tensor) -> torch.Tensor:
    return torch.argmax(x, dim=1)
