"""What a traced reference computes, as a small expression in one normal form per meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """An argument of the reference, possibly seen through a reshape."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Opaque:
    """A value that no starter understands; it equals no other."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Apply:
    """A function of one value, element by element. Division is a product with ``inverse``."""

    function: Literal["exp", "sqrt", "rsqrt", "inverse"]
    source: Expression
    shape: Shape


@dataclass(frozen=True)
class Reduce:
    """A reduction over ``dims`` (sorted, not negative) of ``source``.

    Whether the dimensions were kept shows in ``shape`` only: the elements are the same.
    """

    kind: Literal["sum", "mean", "max", "var"]
    source: Expression
    dims: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True)
class Product:
    """``scale`` times all factors, which are sorted and are no products themselves."""

    factors: tuple[Expression, ...]
    scale: float
    shape: Shape


@dataclass(frozen=True)
class Total:
    """``constant`` plus all terms (coefficient, value), which are sorted and no totals."""

    terms: tuple[tuple[float, Expression], ...]
    constant: float
    shape: Shape


@dataclass(frozen=True)
class Named:
    """An operator that the framework has in one piece, as ``softmax`` over ``dims``."""

    operator: Literal["softmax", "layer_norm", "rms_norm"]
    source: Expression
    dims: tuple[int, ...]
    weight: Expression | None
    bias: Expression | None
    eps: float | None
    shape: Shape


Expression = Leaf | Opaque | Apply | Reduce | Product | Total | Named


def size(value: Expression) -> int:
    """Return how many nodes an expression has, each counted as often as it is written out."""
    match value:
        case Leaf() | Opaque():
            return 1
        case Apply(source=source) | Reduce(source=source) | Named(source=source):
            return 1 + size(source)
        case Product(factors=factors):
            return 1 + sum(map(size, factors))
        case Total(terms=terms):
            return 1 + sum(size(term) for _, term in terms)


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape by the rules of broadcasting (the trace shows that there is one)."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((e for e in extents if e != 1), 1) for extents in zip(*padded, strict=True))


def product(*values: Expression, scale: float = 1.0) -> Expression:
    """Return the product in normal form: flat, sorted, a lone factor as itself."""
    factors: list[Expression] = []
    for value in values:
        if isinstance(value, Product):
            factors += value.factors
            scale *= value.scale
        else:
            factors.append(value)
    if len(factors) == 1 and scale == 1.0:
        return factors[0]
    if len(factors) == 1 and isinstance(found := factors[0], Reduce) and _divides(found, scale):
        return Reduce("mean", found.source, found.dims, found.shape)
    shape = broadcast(*(value.shape for value in values))
    return Product(tuple(sorted(factors, key=repr)), scale, shape)


def _divides(reduced: Reduce, scale: float) -> bool:
    count = math.prod(reduced.source.shape[dim] for dim in reduced.dims)
    return reduced.kind == "sum" and math.isclose(scale * count, 1.0, rel_tol=1e-9)


def total(*terms: tuple[float, Expression], constant: float = 0.0) -> Expression:
    """Return the sum in normal form: flat, sorted, a lone term as itself."""
    flat: list[tuple[float, Expression]] = []
    for coefficient, value in terms:
        if isinstance(value, Total):
            flat += [(coefficient * inner, term) for inner, term in value.terms]
            constant += coefficient * value.constant
        else:
            flat.append((coefficient, value))
    if len(flat) == 1 and flat[0][0] == 1.0 and constant == 0.0:
        return flat[0][1]
    shape = broadcast(*(value.shape for _, value in terms))
    return Total(tuple(sorted(flat, key=repr)), constant, shape)


def inverse(value: Expression) -> Expression:
    """Return ``1 / value``, with roots and products taken apart."""
    match value:
        case Apply(function="sqrt", source=source, shape=shape):
            return Apply("rsqrt", source, shape)
        case Apply(function="rsqrt", source=source, shape=shape):
            return Apply("sqrt", source, shape)
        case Apply(function="inverse", source=source):
            return source
        case Product(factors=factors, scale=scale) if scale != 0:
            return product(*map(inverse, factors), scale=1 / scale)
    return Apply("inverse", value, value.shape)


def power(value: Expression, exponent: float) -> Expression | None:
    """Return ``value ** exponent`` for the exponents that norms use, else None."""
    if exponent == 2:
        return product(value, value)
    if exponent == 0.5:
        return Apply("sqrt", value, value.shape)
    if exponent == -0.5:
        return Apply("rsqrt", value, value.shape)
    return inverse(value) if exponent == -1 else None


def reshaped(value: Expression, shape: Shape) -> Expression | None:
    """Return a reshape, moved inwards to arguments and statistics; None where that changes it."""
    match value:
        case Leaf() | Reduce():
            return replace(value, shape=shape)
        case Apply(function=function, source=source):
            inner = reshaped(source, shape)
            return None if inner is None else Apply(function, inner, shape)
        case Product(factors=factors, scale=scale) if all(f.shape == value.shape for f in factors):
            moved = [reshaped(factor, shape) for factor in factors]
            return product(*_present(moved), scale=scale) if None not in moved else None
        case Total(terms=terms) if all(term.shape == value.shape for _, term in terms):
            moved = [reshaped(term, shape) for _, term in terms]
            if None in moved:
                return None
            coefficients = [coefficient for coefficient, _ in terms]
            pairs = zip(coefficients, _present(moved), strict=True)
            return total(*pairs, constant=value.constant)
    return None


def _present(values: list[Expression | None]) -> list[Expression]:
    return [value for value in values if value is not None]
