# /// kopt-problem
# [reference]
# function = "mean_squared_error"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [inputs.y]
# shape = ["rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 8192
# cols = 16384
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 16381
# [[workloads]]
# name = "prime"
# rows = 104729
# cols = 523
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 16384
# ///
"""Mean of squared differences."""

import torch
import torch.nn.functional as functional


def mean_squared_error(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(x, y)
