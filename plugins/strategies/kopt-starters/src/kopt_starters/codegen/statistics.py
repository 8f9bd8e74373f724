"""Reductions as states that tiles update, lanes or parts merge, and results are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.functions import Kind, Term

PREFIX = "reduce:"
"""Before the kind of a reduction in the name of its operator, as ``reduce:sum``."""
Names: TypeAlias = Sequence[str]
_LOWEST = {"float": 'float("-inf")', "int": "-9223372036854775807"}
_HIGHEST = {"float": 'float("inf")', "int": "9223372036854775807"}
_TYPES: dict[Kind, str] = {"float": "float32", "int": "int64", "bool": "int32"}


def _power(exponent: str) -> str:
    """Return exp of what is never above 0, without the care that results below 2**-126 need."""
    return f"tl.exp2(({exponent}) * 1.4426950408889634)"


@dataclass(frozen=True)
class Statistic:
    """One reduction over the second dimension of tiles. Its states have one variable each.

    ``kind`` is sum, prod, max, min, argmax, argmin, any, all, moments (mean, and the sum of squared
    distances from it) or softmax and logsumexp (maximum, and the sum of powers above it).
    """

    kind: str
    of: Kind
    """What is reduced."""
    long: bool = False
    """Whether positions of an extreme need 64 bits; in 32 a sweep takes fewer instructions."""

    @property
    def types(self) -> tuple[str, ...]:
        """Dtypes of the states."""
        value = _TYPES["bool" if self.kind in ("any", "all") else self.of]
        if self.kind in ("argmax", "argmin"):
            return value, "int64" if self.long else "int32"
        return (value, value) if self.kind in ("moments", "softmax", "logsumexp") else (value,)

    @property
    def outputs(self) -> tuple[Kind, ...]:
        """Kinds of what ``merge`` leaves in the states, for the reader."""
        if self.kind in ("any", "all"):
            return ("bool",)
        kinds: dict[str, Kind] = {"float32": "float", "int64": "int", "int32": "int"}
        return tuple(kinds[dtype] for dtype in self.types)

    @property
    def initial(self) -> tuple[str, ...]:
        """What the states are before anything was seen; they merge with others and change nothing."""
        lowest = _LOWEST[self.of] if self.of != "bool" else "0"
        highest = _HIGHEST[self.of] if self.of != "bool" else "1"
        return {
            "sum": ("0",), "prod": ("1",), "any": ("0",), "all": ("1",), "moments": ("0", "0"),
            "max": (lowest,), "min": (highest,), "argmax": (lowest, "-1"),
            "argmin": (highest, "-1"), "softmax": (lowest, "0"), "logsumexp": (lowest, "0"),
        }[self.kind]  # fmt: skip

    def begin(self, names: Names, shape: str) -> list[str]:
        """Return lines that set the states before the first tile."""
        return [
            f"{name} = tl.full({shape}, {value}, tl.{dtype})"
            for name, value, dtype in zip(names, self.initial, self.types, strict=True)
        ]

    @property
    def powers(self) -> bool:
        """The state is a maximum and a sum of powers above it."""
        return self.kind in ("softmax", "logsumexp")

    def whole(self, names: Names, x: Term) -> list[str]:
        """Return lines that leave the states of a single tile ``x`` in [ROWS, 1], for ``powers``."""
        a, b = names
        return [
            f"{a}_x = tl.where(inside, {x.to(self.of)}, {self.initial[0]})",
            f"{a} = tl.max({a}_x, axis=1)[:, None]",
            *self._shift(a, f"{a}_shift"),
            f"{b} = tl.sum({_power(f'{a}_x - {a}_shift')}, axis=1)[:, None]",
        ]

    def folded(self, names: Names, x: Term, fold: str) -> list[str]:
        """Return lines that add a tile ``x`` where ``inside``, for ``powers``.

        Each ``fold`` elements side by side share a state: then an element takes one power and not two.
        """
        a, b = names
        return [
            f"{a}_x = tl.where(inside, {x.to(self.of)}, {self.initial[0]})",
            f"{a}_x = tl.reshape({a}_x, [ROWS, BLOCK // {fold}, {fold}])",
            f"{a}_top = tl.maximum({a}, tl.max({a}_x, axis=2))",
            *self._shift(f"{a}_top", f"{a}_shift"),
            f"{b} = {b} * {_power(f'{a} - {a}_shift')}"
            f" + tl.sum({_power(f'{a}_x - {a}_shift[:, :, None]')}, axis=2)",
            f"{a} = {a}_top",
        ]

    def update(self, names: Names, x: Term, index: str, *, completed: bool = False) -> list[str]:
        """Return lines that add a tile ``x`` where ``inside``.

        ``index`` is an element's number along what is reduced; ``turn`` counts tiles from 1. Where
        ``complete`` follows the last tile, there is less to do for each element.
        """
        a, b = (*names, "")[:2]
        value = f"{a}_x"
        if self.kind in ("any", "all"):
            taken = (
                f"{value} = tl.where(inside, {x.to('bool')}, {self.initial[0]} != 0).to(tl.int32)"
            )
            return [taken, f"{a} = {a} {'|' if self.kind == 'any' else '&'} {value}"]
        lines = [f"{value} = {x.to(self.of)}"]
        if self.kind in ("argmax", "argmin"):
            # What is not worse is better, or a NaN; the first NaN stays.
            worse = "<=" if self.kind == "argmax" else ">="
            better = f"({a}_worse == 0)"
            if not completed or self.of != "float":
                better = f"({better} | ({b} < 0))"
            return [
                *lines,
                f"{a}_worse = ({value} {worse} {a}) | ({a} != {a})",
                f"{a}_better = inside & {better}",
                f"{b} = tl.where({a}_better, {index}.to(tl.{self.types[1]}), {b})",
                f"{a} = tl.where({a}_better, {value}, {a})",
            ]
        if self.kind == "moments":
            return [
                *lines,
                f"{a}_step = tl.where(inside, {value} - {a}, 0.0)",
                f"{a} += {a}_step * (1.0 / turn)",
                f"{b} += {a}_step * tl.where(inside, {value} - {a}, 0.0)",
            ]
        lines = [f"{value} = tl.where(inside, {x.to(self.of)}, {self.initial[0]})"]
        if self.powers:
            return [
                *lines,
                f"{a}_top = tl.maximum({a}, {value})",
                *self._shift(f"{a}_top", f"{a}_shift"),
                f"{b} = {b} * {_power(f'{a} - {a}_shift')} + {_power(f'{value} - {a}_shift')}",
                f"{a} = {a}_top",
            ]
        nan = "propagate_nan=tl.PropagateNan.ALL"
        joined = {"sum": "{a} + {x}", "prod": "{a} * {x}", "max": f"tl.maximum({{a}}, {{x}}, {nan})",
                  "min": f"tl.minimum({{a}}, {{x}}, {nan})"}  # fmt: skip
        return [*lines, f"{a} = {joined[self.kind].format(a=a, x=value)}"]

    def complete(self, names: Names, first: str, seen: str) -> list[str]:
        """Return lines after the last tile: ``first`` is where lanes that saw something began."""
        if self.kind not in ("argmax", "argmin") or self.of != "float":
            return []
        # Where nothing was better than an infinity, all elements were one, and the first is it.
        b = names[1]
        return [f"{b} = tl.where(({b} < 0) & ({seen} > 0), {first}.to(tl.{self.types[1]}), {b})"]

    def _shift(self, top: str, name: str) -> list[str]:
        """Return what powers are taken above: never an infinity that would be taken from itself."""
        infinite = f"{top} == float('-inf')"
        if self.kind == "logsumexp":
            infinite = f"tl.abs({top}) == float('inf')"
        return [f"{name} = tl.where({infinite}, 0.0, {top})"]

    def merge(self, names: Names, count: str, total: str) -> list[str]:
        """Return lines that merge states of shape [ROWS, n] into [ROWS, 1], under the same names.

        ``count`` is how many elements each of the n has seen, ``total`` how many all have.
        """
        a, b = (*names, "")[:2]
        if self.kind == "sum":
            return [f"{a} = tl.sum({a}, axis=1)[:, None]"]
        if self.kind == "prod":
            return [f"{a} = tl.reduce({a}, 1, _product)[:, None]"]
        if self.kind in ("any", "all"):
            return [f"{a} = tl.{'max' if self.kind == 'any' else 'min'}({a}, axis=1)[:, None]"]
        if self.kind == "moments":
            return [
                f"{a}_mean = tl.sum({a} * {count}, axis=1)[:, None] / {total}",
                f"{b} = tl.sum({b} + {count} * ({a} - {a}_mean) * ({a} - {a}_mean), axis=1)[:, None]",
                f"{a} = {a}_mean",
            ]
        if self.powers:
            return [
                f"{a}_top = tl.max({a}, axis=1)[:, None]",
                *self._shift(f"{a}_top", f"{a}_shift"),
                f"{b} = tl.sum({b} * {_power(f'{a} - {a}_shift')}, axis=1)[:, None]",
                f"{a} = {a}_top",
            ]
        return self._merged_extreme(a, b)

    def _merged_extreme(self, a: str, b: str) -> list[str]:
        largest = "max" if self.kind.endswith("max") else "min"
        lines = [f"{a}_best = tl.{largest}({a}, axis=1)[:, None]"]
        if self.of == "float":
            lines += [
                f"{a}_nan = tl.max(({a} != {a}).to(tl.int32), axis=1)[:, None]",
                f'{a}_best = tl.where({a}_nan != 0, float("nan"), {a}_best)',
            ]
        if self.kind.startswith("arg"):
            same = f"({a} == {a}_best)"
            if self.of == "float":
                same = f"({same} | (({a} != {a}) & ({a}_nan != 0)))"
            last = 2**63 - 1 if self.long else 2**31 - 1
            first = f"tl.where({same} & ({b} >= 0), {b}, {last})"
            lines.append(f"{b} = tl.min({first}, axis=1)[:, None].to(tl.int64)")
        return [*lines, f"{a} = {a}_best"]


def statistic(operator: str, of: Kind, elements: int = 1) -> Statistic:
    """Return the statistic of a reduction's operator over so many elements.

    Raises NotCoveredError for odd types.
    """
    kind = operator.removeprefix(PREFIX)
    if kind in ("moments", "softmax", "logsumexp") and of != "float":
        raise NotCoveredError(f"{kind} of {of}")
    if of == "bool" and kind not in ("any", "all"):
        of = "int"
    return Statistic(kind, of, elements >= 2**31)
