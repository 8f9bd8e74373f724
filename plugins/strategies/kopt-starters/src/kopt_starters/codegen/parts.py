"""Rewrites a graph into element-wise operators and reductions that keep their dimensions."""

from __future__ import annotations

import math
from dataclasses import replace

from kopt_starters.codegen.activations import LOSSES
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.normalisations import batch_norm, group_norm, layer_norm
from kopt_starters.codegen.rewriting import Made, Parts, Rewrite, count_of, dims_of, input_of
from kopt_starters.graph import Graph, Node, Value


def _dims_of_overload(parts: Parts) -> tuple[int, ...]:
    """As ``_dims``, for operators whose plain form has something else at that place."""
    whole = parts.node.overload in ("default", "")
    return tuple(range(len(input_of(parts).shape))) if whole else dims_of(parts)


def _plain(kind: str) -> Rewrite:
    def rewrite(parts: Parts) -> None:
        x, out = input_of(parts), parts.node.output
        dtype = "int64" if "int" in out.dtype else "bool" if out.dtype == "bool" else "float32"
        named = kind in ("max", "min")
        dims = dims_of(parts) if named else _dims_of_overload(parts)
        parts.finish(parts.reduce(kind, x, dims, (dtype,))[0])

    return rewrite


def _mean(parts: Parts) -> None:
    dims = _dims_of_overload(parts)
    total = parts.reduce("sum", input_of(parts), dims)[0]
    parts.finish(parts.add("mul", total, Made(1 / count_of(parts, dims)), shape=total.shape))


def _extreme(kind: str) -> Rewrite:
    """Rewrite max and min: over everything, or over a dimension with indices."""

    def rewrite(parts: Parts) -> None:
        x, outputs = input_of(parts), parts.node.outputs
        if parts.node.overload == "default":
            return _plain(kind)(parts)
        if parts.node.overload != "dim":
            raise NotCoveredError(f"{kind}.{parts.node.overload}")
        dims, dtype = dims_of(parts), "float32" if "float" in x.dtype else "int64"
        # Two reductions: what nobody asks for is not done, and positions cost more than extremes.
        parts.finish(parts.reduce(kind, x, dims, (dtype,))[0], outputs[0])
        return parts.finish(parts.reduce(f"arg{kind}", x, dims, (dtype, "int64"))[1], outputs[1])

    return rewrite


def _index(kind: str) -> Rewrite:
    def rewrite(parts: Parts) -> None:
        x = input_of(parts)
        dtype = "float32" if "float" in x.dtype else "int64"
        parts.finish(parts.reduce(kind, x, dims_of(parts), (dtype, "int64"))[1])

    return rewrite


def _spread(operator: str) -> Rewrite:
    """Rewrite var, std and var_mean."""

    def rewrite(parts: Parts) -> None:
        node = parts.node
        if node.overload != "correction":
            raise NotCoveredError(f"{operator}.{node.overload}")
        dims = dims_of(parts)
        correction = node.argument(9, "correction", 1)
        correction = 1 if correction is None else correction
        assert isinstance(correction, int | float)
        mean, squares = parts.reduce("moments", input_of(parts), dims, ("float32",) * 2)
        left = count_of(parts, dims) - correction
        factor = Made(1 / left if left > 0 else math.inf)
        var = parts.add("mul", squares, factor, shape=squares.shape)
        if operator == "std":
            var = parts.add("sqrt", var, shape=var.shape)
        parts.finish(var)
        if operator == "var_mean":
            parts.finish(mean, node.outputs[1])

    return rewrite


def _norm(parts: Parts) -> None:
    """Rewrite linalg_vector_norm and norm: the p-norm of all elements over some dimensions."""
    x, node = input_of(parts), parts.node
    dims = dims_of(parts, 2)
    p = node.argument(1, "ord" if "linalg" in node.operator else "p", 2)
    p = 2 if p is None else p
    if not isinstance(p, int | float):
        raise NotCoveredError("a norm that is no p-norm")
    if p in (math.inf, -math.inf):
        size = parts.add("abs", x, shape=x.shape)
        return parts.finish(parts.reduce("max" if p > 0 else "min", size, dims)[0])
    if p == 0:
        there = parts.add("ne", x, 0, shape=x.shape, dtype="bool")
        ones = parts.add("_to_copy", there, shape=x.shape)
        return parts.finish(parts.reduce("sum", ones, dims)[0])
    if p == 2:
        power = parts.add("square", x, shape=x.shape)
    else:
        power = parts.add("abs", x, shape=x.shape)
        if p != 1:
            power = parts.add("pow", power, Made(p), shape=x.shape)
    total = parts.reduce("sum", power, dims)[0]
    if p == 2:
        total = parts.add("sqrt", total, shape=total.shape)
    elif p != 1:
        total = parts.add("pow", total, Made(1 / p), shape=total.shape)
    return parts.finish(total)


def _softmax(operator: str) -> Rewrite:
    def rewrite(parts: Parts) -> None:
        x = input_of(parts)
        top, total = parts.reduce("softmax", x, dims_of(parts), ("float32",) * 2)
        above = parts.add("sub", x, top, shape=x.shape)
        if operator == "_log_softmax":
            log = parts.add("log", total, shape=total.shape)
            return parts.finish(parts.add("sub", above, log, shape=x.shape))
        power = parts.add("exp_below", above, shape=x.shape)
        inverse = parts.add("reciprocal", total, shape=total.shape)
        return parts.finish(parts.add("mul", power, inverse, shape=x.shape))

    return rewrite


def _logsumexp(parts: Parts) -> None:
    top, total = parts.reduce("logsumexp", input_of(parts), dims_of(parts), ("float32",) * 2)
    log = parts.add("log", total, shape=total.shape)
    parts.finish(parts.add("add", top, log, shape=top.shape))


def _loss(parts: Parts) -> None:
    node = parts.node
    x, target = node.tensors[:2]
    reduction = node.argument(2, "reduction", 1)
    if x.shape != target.shape or reduction not in (0, 1, 2):
        raise NotCoveredError("a loss of tensors of two shapes")
    edge = node.argument(3, "delta" if node.operator == "huber_loss" else "beta", 1.0)
    each = parts.add(node.operator, x, target, 0, edge, shape=x.shape)
    if reduction == 0:
        return parts.finish(each)
    total = parts.reduce("sum", each, tuple(range(len(x.shape))))[0]
    if reduction == 1:
        total = parts.add("mul", total, Made(1 / x.elements), shape=total.shape)
    return parts.finish(total)


REWRITES: dict[str, Rewrite] = {
    "_log_softmax": _softmax("_log_softmax"),
    "_native_batch_norm_legit": batch_norm,
    "_native_batch_norm_legit_no_training": batch_norm,
    "_softmax": _softmax("_softmax"),
    "all": _plain("all"),
    "amax": _plain("max"),
    "amin": _plain("min"),
    "any": _plain("any"),
    "argmax": _index("argmax"),
    "argmin": _index("argmin"),
    "cudnn_batch_norm": batch_norm,
    "linalg_vector_norm": _norm,
    "logsumexp": _logsumexp,
    "max": _extreme("max"),
    "mean": _mean,
    "min": _extreme("min"),
    "native_batch_norm": batch_norm,
    "native_group_norm": group_norm,
    "native_layer_norm": layer_norm,
    "norm": _norm,
    "prod": _plain("prod"),
    "std": _spread("std"),
    "sum": _plain("sum"),
    "var": _spread("var"),
    "var_mean": _spread("var_mean"),
}


def in_parts(graph: Graph) -> Graph:
    """Return the graph with every known reduction and normalisation rewritten.

    Operators that are not known stay. Raises NotCoveredError for a form that is not known.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        rewrite = _loss if node.operator in LOSSES else REWRITES.get(node.operator)
        if rewrite is None or node.overload == "other" or not node.tensors:
            nodes.append(node)
            continue
        parts = Parts(node)
        rewrite(parts)
        nodes += parts.nodes
    return replace(graph, nodes=tuple(nodes))


def result_of(graph: Graph) -> Value | None:
    """Return the graph's only result; None where it cannot be told among an operator's outputs."""
    result = graph.result
    node = graph.producer(result) if result is not None else None
    if result is None or node is None:
        return None
    if any(argument.tensor and not argument.tensor.elements for argument in graph.arguments):
        return None  # nothing to do, and means over nothing
    wanted = graph.call.outputs[0].dtype.removeprefix("torch.")
    alike = [v for v in node.outputs if v.shape == result.shape and v.dtype == wanted]
    if len(alike) > 1 and node.operator in ("max", "min", "var_mean"):
        return None  # which of them it is, the trace does not tell
    return alike[0] if alike and alike[0].elements else None
