"""Floating-point operations of one framework operator, from the shapes of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_Named = dict[str, Any]


def operations(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, str]:
    """Return what a product or convolution costs, and in which dtype; 0 and "" for other operators.

    A multiply-add counts two; a bias, a scale and a softmax count nothing. A convolution counts its
    padding as if it were data, a transposed one what it crops. Products and convolutions go by
    PyTorch's own formulas (torch.utils.flop_counter), what these do not know by those below.
    """
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    own = _FORMULAS.get(name) or (_attention if _is_attention(name) else None)
    if own is not None:
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
        flops = own(named | kwargs)
    elif (known := _known(name)) is not None:
        flops = int(known(*args, **kwargs, out_val=result))
    else:
        return 0, ""
    tensors = (leaf for leaf in tree_leaves([args, kwargs]) if isinstance(leaf, torch.Tensor))
    return flops, str(next(tensors).dtype).removeprefix("torch.")


def _known(name: str) -> Callable[..., int] | None:
    """Return PyTorch's own formula; what works in place costs what its other form does."""
    known: Callable[..., int] | None = flop_registry.get(getattr(torch.ops.aten, name, None))
    return known


def _is_attention(name: str) -> bool:
    return name.startswith("_scaled_dot_product") and not name.endswith("backward")


def _matrix_vector(named: _Named) -> int:
    matrix = named["mat"] if "mat" in named else named["self"]
    return 2 * int(matrix.numel())


def _inner(named: _Named) -> int:
    return 2 * int(named["self"].numel())


def _summed_products(named: _Named) -> int:
    """``addbmm``: every product of a batch, summed."""
    return 2 * int(named["batch1"].numel()) * int(named["batch2"].shape[-1])


def _attention(named: _Named) -> int:
    """Scores and weighted sums of scaled dot-product attention; of a causal one what is not masked.

    Query (..., heads, rows, depth), key and value (..., heads of their own, columns, depth): each
    pair of a row and a column costs the depths of key and value. Causal: row i sees the columns
    up to i, as PyTorch's ``is_causal`` says.
    """
    query, key, value = named["query"], named["key"], named["value"]
    rows, columns = int(query.shape[-2]), int(key.shape[-2])
    pairs = rows * columns
    if named.get("is_causal"):
        square = min(rows, columns)
        pairs = square * (square + 1) // 2 + (rows - square) * columns
    depths = int(query.shape[-1]) + int(value.shape[-1])
    return int(2 * math.prod(query.shape[:-2]) * pairs * depths)


def _recurrent(named: _Named) -> int:
    """Recurrent layers as one operator: each weight matrix meets each step of each sequence once."""
    steps = int(named["input"].numel()) // int(named["input"].shape[-1])
    weights = named["weight"] if "weight" in named else [named["weight0"], named["weight1"]]
    return 2 * steps * sum(int(weight.numel()) for weight in weights if weight.dim() == 2)


def _bilinear(named: _Named) -> int:
    """``bilinear``: rows (count, n), weight (outputs, n, m), rows (count, m), one factor at a time."""
    count, weight = int(named["i1"].shape[0]), named["i2"]
    outputs, _, second = (int(extent) for extent in weight.shape)
    return 2 * count * (int(weight.numel()) + outputs * second)


_FORMULAS: dict[str, Callable[[_Named], int]] = {
    "mv": _matrix_vector,
    "addmv": _matrix_vector,
    "dot": _inner,
    "vdot": _inner,
    "addbmm": _summed_products,
    "_trilinear": _bilinear,
    "_cudnn_rnn": _recurrent,
    "mkldnn_rnn_layer": _recurrent,
}
"""Of operators without a formula in torch.utils.flop_counter, by name without overload."""
