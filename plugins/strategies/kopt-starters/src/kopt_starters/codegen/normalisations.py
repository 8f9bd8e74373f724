"""Normalisations as means, sums of squared distances and element-wise operators."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.rewriting import Made, Parts, input_of
from kopt_starters.graph import Node, Value

if TYPE_CHECKING:
    from kopt_starters.graph import Given


def _normalised(parts: Parts, x: Value, dims: tuple[int, ...], eps: Given) -> Value:
    """Return (x - mean) / sqrt(var + eps) over dimensions."""
    mean, squares = parts.reduce("moments", x, dims, ("float32",) * 2)
    count = prod(x.shape[dim] for dim in dims)
    var = parts.add("mul", squares, Made(1 / count), shape=squares.shape)
    scale = parts.add("rsqrt", parts.add("add", var, eps, shape=var.shape), shape=var.shape)
    centred = parts.add("sub", x, mean, shape=x.shape)
    return parts.add("mul", centred, scale, shape=x.shape)


def _affine(parts: Parts, x: Value, weight: Given, bias: Given, shape: tuple[int, ...]) -> Value:
    """Return x * weight + bias, those laid out as ``shape``."""
    for operator, given in (("mul", weight), ("add", bias)):
        if isinstance(given, Value):
            laid = parts.add("view", given, shape, shape=shape, dtype=given.dtype)
            x = parts.add(operator, x, laid, shape=x.shape)
        elif given is not None:
            raise NotCoveredError("a parameter that is no tensor")
    return x


def layer_norm(parts: Parts) -> None:
    """Rewrite native_layer_norm(x, normalized_shape, weight, bias, eps)."""
    x, node = input_of(parts), parts.node
    extents = node.argument(1, "normalized_shape")
    assert isinstance(extents, tuple)
    rank = len(x.shape)
    y = _normalised(parts, x, tuple(range(rank - len(extents), rank)), node.argument(4, "eps"))
    shape = tuple(int(extent) for extent in extents)  # type: ignore[arg-type]
    parts.finish(_affine(parts, y, node.argument(2, "weight"), node.argument(3, "bias"), shape))


def group_norm(parts: Parts) -> None:
    """Rewrite native_group_norm(x, weight, bias, batch, channels, inner, groups, eps)."""
    weight, bias, batch, channels, inner, groups, eps = parts.node.given[1:8]
    sizes = (batch, channels, inner, groups)
    n, c, hw, g = (int(size) for size in sizes if isinstance(size, int))
    shape = (n, g, c // g, hw)
    x = parts.add("view", input_of(parts), shape, shape=shape)
    y = _normalised(parts, x, (2, 3), eps)
    parts.finish(_affine(parts, y, weight, bias, (1, g, c // g, 1)))


def batch_norm(parts: Parts) -> None:
    """Rewrite a batch norm over dimension 1: by statistics that are given, or by its own."""
    x, node = input_of(parts), parts.node
    weight, bias, mean, var, training, _, eps = _batch_norm_arguments(node)
    shape = tuple(extent if dim == 1 else 1 for dim, extent in enumerate(x.shape))
    if training:
        if mean is not None or var is not None:
            raise NotCoveredError("running statistics would change")
        y = _normalised(parts, x, tuple(d for d in range(len(x.shape)) if d != 1), eps)
        return parts.finish(_affine(parts, y, weight, bias, shape))
    if not isinstance(mean, Value) or not isinstance(var, Value):
        raise NotCoveredError("a batch norm without statistics")
    plus = parts.add("add", var, eps, shape=var.shape)
    scale = parts.add("rsqrt", plus, shape=var.shape)
    laid = [parts.add("view", v, shape, shape=shape) for v in (mean, scale)]
    y = parts.add("sub", x, laid[0], shape=x.shape)
    y = parts.add("mul", y, laid[1], shape=x.shape)
    return parts.finish(_affine(parts, y, weight, bias, shape))


def _batch_norm_arguments(node: Node) -> tuple[Given, ...]:
    """Return weight, bias, mean, variance, training, momentum, eps."""
    given = node.given[1:]
    if node.overload == "no_stats":
        return (*given[:2], None, None, *given[2:5])
    if node.operator.endswith("no_training"):
        return (*given[:4], False, *given[4:6])
    return given[:7]
