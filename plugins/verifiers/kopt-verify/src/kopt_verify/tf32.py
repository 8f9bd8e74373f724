"""Matrix products and convolutions as a tensor core does them: with inputs of 10 mantissa bits."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear", "matmul",
    "_addmm_activation", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math",
})  # fmt: skip
_CONVOLUTIONS = frozenset({
    "convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose",
    "mkldnn_convolution", "slow_conv3d", "conv2d", "conv3d", "conv_depthwise3d",
})  # fmt: skip
_DROPPED_BITS = 13
_HALF_UNIT = 1 << (_DROPPED_BITS - 1)


def rounded_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Return float32 values rounded to 10 mantissa bits, ties away from zero."""
    bits = tensor.contiguous().view(torch.int32)
    rounded = (bits + _HALF_UNIT) & -(1 << _DROPPED_BITS)
    return torch.where(torch.isfinite(tensor), rounded.view(torch.float32), tensor)


class Tf32Mode(TorchDispatchMode):
    """Rounds what products and convolutions multiply, where PyTorch itself would not.

    ``convolutions``: these alone, and always: PyTorch is free to round there, and may not.
    """

    def __init__(self, *, convolutions: bool = False) -> None:
        super().__init__()
        self._convolutions = convolutions
        self.rounded = 0
        """How many operators were given rounded inputs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; a product on rounded inputs (a bias is left as it is)."""
        name = func.overloadpacket.__name__
        kwargs = kwargs or {}
        wanted = _is_float32(args) and name in _CONVOLUTIONS
        if not (wanted if self._convolutions else _multiplies(name, args)):
            return func(*args, **kwargs)
        self.rounded += 1
        added = 1 if name.startswith(("add", "baddbmm", "_addmm")) else 0
        multiplied = 2 if name in _CONVOLUTIONS else len(args)
        rounded = [
            tree_map(_round, arg) if added <= index < added + multiplied else arg
            for index, arg in enumerate(args)
        ]
        return func(*rounded, **kwargs)


def _multiplies(name: str, args: Any) -> bool:
    if not _is_float32(args):
        return False
    device = next(arg for arg in args if isinstance(arg, torch.Tensor)).is_cuda
    if name in _CONVOLUTIONS:
        return not (device and torch.backends.cudnn.allow_tf32)
    return name in _PRODUCTS and not (device and torch.backends.cuda.matmul.allow_tf32)


def _is_float32(args: Any) -> bool:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return bool(tensors) and tensors[0].dtype is torch.float32


def _round(value: Any) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.dtype is torch.float32
    return rounded_to_tf32(value) if narrow else value
