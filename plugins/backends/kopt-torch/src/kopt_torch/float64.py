"""Running a reference in float64, also where it casts to a narrower type itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_NARROW = (torch.float16, torch.bfloat16, torch.float32)


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def widened(tree: Any) -> Any:
    """Return the same nesting with every narrow floating tensor in float64."""
    return tree_map(
        lambda x: x.double() if isinstance(x, torch.Tensor) and x.dtype in _NARROW else x, tree
    )


class Float64Mode(TorchDispatchMode):
    """Replace narrow floating dtypes in operator arguments by float64: casts cannot round."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator with widened dtypes."""
        args = tree_map(_wide_dtype, args)
        kwargs = tree_map(_wide_dtype, kwargs or {})
        if func is torch.ops.aten.convolution.default and args[6]:
            # Transposed: PyTorch's own was 1.7 to 9 times as fast as cuDNN's in this type (on an H200).
            with torch.backends.cudnn.flags(enabled=False):
                return func(*args, **kwargs)
        return func(*args, **kwargs)
