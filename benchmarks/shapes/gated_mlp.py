# /// kopt-problem
# [reference]
# function = "gated_mlp"
# [inputs.x]
# shape = ["rows", "width"]
# dtype = "float16"
# [inputs.gate]
# shape = ["width", "hidden"]
# dtype = "float16"
# [inputs.up]
# shape = ["width", "hidden"]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# rows = 4096
# width = 4096
# hidden = 8192
# [[workloads]]
# name = "odd"
# rows = 4095
# width = 2046
# hidden = 4098
# [[workloads]]
# name = "prime"
# rows = 2003
# width = 2003
# hidden = 5003
# [[workloads]]
# name = "larger"
# rows = 8192
# width = 4096
# hidden = 14336
# ///
"""Gated MLP: two products, one of them through SiLU, times each other."""

import torch
import torch.nn.functional as functional


def gated_mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(x @ gate) * (x @ up)
