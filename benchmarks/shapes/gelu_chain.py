# /// kopt-problem
# [reference]
# function = "gelu_chain"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float32"
# [inputs.y]
# shape = ["rows", "cols"]
# dtype = "float32"
# [[workloads]]
# name = "tuned"
# rows = 4096
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
# rows = 16384
# cols = 24576
# ///
"""GELU of a scaled sum, element by element."""

import torch
import torch.nn.functional as functional


def gelu_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x * 1.5 + y, approximate="tanh")
