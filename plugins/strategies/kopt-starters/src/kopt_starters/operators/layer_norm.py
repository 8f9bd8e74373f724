"""Layer norm over trailing dimensions, with or without weight and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters import cpu, cuda_rows, gpu
from kopt_starters.expression import (
    Apply,
    Expression,
    Leaf,
    Named,
    Product,
    Reduce,
    Total,
    product,
    total,
)
from kopt_starters.operator import Match, Operator, Structure
from kopt_starters.pattern import adjacent, is_argument, lines_up, runs_along

if TYPE_CHECKING:
    from kopt_starters.operator import Arguments


def match(expression: Expression, arguments: Arguments) -> Match | None:
    """Return how ``expression`` is a layer norm, or None."""
    found = expression if isinstance(expression, Named) else _by_hand(expression)
    if found is None or found.operator != "layer_norm" or found.eps is None:
        return None
    x, dims = found.source, found.dims
    if not isinstance(x, Leaf) or not is_argument(x, arguments) or not adjacent(dims):
        return None
    if dims[-1] != len(x.shape) - 1:
        return None
    names: list[str | None] = []
    for value in (found.weight, found.bias):
        if value is not None and not runs_along(value, x.shape, dims):
            return None
        names.append(value.name if isinstance(value, Leaf) else None)
    return Match(x.name, dims[0], dims[-1], weight=names[0], bias=names[1], eps=found.eps)


def _by_hand(expression: Expression) -> Named | None:
    """Gather ``(x - mean) * rsqrt(var + eps) [* weight] [+ bias]`` into one operator."""
    bias: Expression | None = None
    if isinstance(expression, Total):
        leaves = [term for term in expression.terms if isinstance(term[1], Leaf)]
        others = [term for term in expression.terms if not isinstance(term[1], Leaf)]
        if expression.constant or [c for c, _ in leaves + others] != [1.0, 1.0] or len(leaves) != 1:
            return None
        (_, bias), (_, expression) = leaves[0], others[0]
    if not isinstance(expression, Product) or expression.scale != 1.0:
        return None
    rest = list(expression.factors)
    scales = [factor for factor in rest if isinstance(factor, Apply) and factor.function == "rsqrt"]
    centred = [factor for factor in rest if isinstance(factor, Total)]
    if len(scales) != 1 or len(centred) != 1 or len(rest) not in (2, 3):
        return None
    rest.remove(scales[0])
    rest.remove(centred[0])
    statistic = _statistics(centred[0], scales[0])
    if statistic is None:
        return None
    x, dims, eps = statistic
    return Named("layer_norm", x, dims, rest[0] if rest else None, bias, eps, x.shape)


def _statistics(centred: Total, scale: Apply) -> tuple[Leaf, tuple[int, ...], float] | None:
    """Check that ``centred`` is x minus its mean and ``scale`` its inverse deviation."""
    means = [term for _, term in centred.terms if isinstance(term, Reduce)]
    if len(means) != 1 or means[0].kind != "mean" or not lines_up(means[0]):
        return None
    mean, x = means[0], means[0].source
    if not isinstance(x, Leaf) or centred != total((1.0, x), (-1.0, mean)):
        return None
    match scale.source:
        case Total(terms=((1.0, Reduce() as var),), constant=eps) if var.dims == mean.dims:
            direct = var.kind == "var" and var.source == x
            spelt = var.kind == "mean" and var.source == product(centred, centred)
            return (x, mean.dims, eps) if (direct or spelt) and lines_up(var) else None
    return None


OPERATOR = Operator(
    name="layer_norm",
    parameters=("weight", "bias", "eps"),
    match=match,
    structures=(
        Structure(
            "cpp", "layer_norm_split.cpp", "all threads share a row",
            cpu.few_rows, cpu.shared_row_knobs,
        ),
        Structure(
            "cpp", "layer_norm_rows.cpp", "one read, the row stays in cache",
            cpu.rows, cpu.row_knobs,
        ),
        *cuda_rows.row_structures("layer_norm"),
        *gpu.row_structures("layer_norm"),
    ),
)  # fmt: skip
