# /// kopt-problem
# [reference]
# function = "layer_norm"
# [inputs.x]
# shape = ["rows", "cols"]
# dtype = "float16"
# [inputs.weight]
# shape = ["cols"]
# dtype = "float16"
# [inputs.bias]
# shape = ["cols"]
# dtype = "float16"
# [[workloads]]
# name = "tuned"
# rows = 8192
# cols = 4096
# [[workloads]]
# name = "odd"
# rows = 4097
# cols = 5001
# [[workloads]]
# name = "prime"
# rows = 1021
# cols = 12289
# [[workloads]]
# name = "larger"
# rows = 32768
# cols = 8192
# ///
"""Layer norm of each row."""

import torch
import torch.nn.functional as functional


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)
