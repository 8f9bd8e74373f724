# /// kopt-problem
# [reference]
# function = "cross_entropy"
# [inputs.x]
# shape = ["rows", "classes"]
# dtype = "float16"
# [inputs.labels]
# shape = ["rows"]
# dtype = "int64"
# distribution = "integers"
# low = 0
# high = "classes"
# [[workloads]]
# name = "tuned"
# rows = 8192
# classes = 32000
# [[workloads]]
# name = "odd"
# rows = 4097
# classes = 32003
# [[workloads]]
# name = "prime"
# rows = 1013
# classes = 128257
# [[workloads]]
# name = "larger"
# rows = 16384
# classes = 50304
# ///
"""Mean cross-entropy."""

import torch
import torch.nn.functional as functional


def cross_entropy(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(x, labels)
