"""Terms of generated Triton code: values in float32, int64 or bool, and operators over them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.graph import Given, Node

Kind: TypeAlias = Literal["float", "int", "bool"]
_FLOATS = frozenset({"float32", "float16", "bfloat16"})
_INTEGERS = frozenset({"int64", "int32", "int16", "int8", "uint8"})


def kind_of(dtype: str) -> Kind:
    """Return as what a dtype is computed. Raises NotCoveredError for float64 and complex numbers."""
    if dtype in _FLOATS:
        return "float"
    if dtype in _INTEGERS:
        return "int"
    if dtype == "bool":
        return "bool"
    raise NotCoveredError(f"arithmetic in {dtype}")


@dataclass(frozen=True)
class Term:
    """A value in a kernel: a variable or a literal."""

    text: str
    kind: Kind
    literal: bool = False

    def to(self, kind: Kind) -> str:
        """Return it as an expression of another kind."""
        if self.kind == kind:
            return self.text
        if kind == "bool":
            return f"({self.text} != 0)"
        if self.literal:
            whole = kind == "float" and self.kind == "int"
            return literal(float(self.text.strip("()"))).text if whole else self.text
        return f"{self.text}.to({'tl.float32' if kind == 'float' else 'tl.int64'})"


def literal(value: bool | int | float) -> Term:
    """Return a constant as it is written in a kernel."""
    if isinstance(value, bool):
        return Term(str(int(value)), "int", literal=True)
    if isinstance(value, int):
        return Term(f"({value})" if value < 0 else str(value), "int", literal=True)
    if math.isnan(value) or math.isinf(value):
        return Term(f'float("{value}")', "float", literal=True)
    return Term(f"({value!r})" if value < 0 else repr(float(value)), "float", literal=True)


@dataclass(frozen=True)
class Call:
    """One operator with its operands as terms, in order of its arguments."""

    node: Node
    term: Callable[[Given], Term]

    def operand(self, position: int, name: str, default: Given = None) -> Term:
        """Return an argument as a term."""
        return self.term(self.node.argument(position, name, default))

    def floating(self, position: int, name: str, default: Given = None) -> str:
        """Return an argument as a float32 expression."""
        return self.operand(position, name, default).to("float")

    def number(self, position: int, name: str, default: float) -> float:
        """Return an argument that is a constant."""
        value = self.node.argument(position, name, default)
        if value is None:
            return default
        if not isinstance(value, bool | int | float):
            raise NotCoveredError(f"{self.node.operator}: {name} is no number")
        return float(value)

    @property
    def kind(self) -> Kind:
        """Of the result."""
        return kind_of(self.node.output.dtype)


Rule: TypeAlias = Callable[[Call], str]
"""Writes what an operator computes, in the kind of its result."""


def of_x(form: str) -> Rule:
    """Return a rule for a function of one floating value, ``{x}`` in its form."""
    return lambda call: form.replace("{x}", call.floating(0, "self"))


def between(x: str, low: str | None, high: str | None) -> str:
    """Return x within bounds, NaN kept."""
    if low is not None:
        x = f"tl.where({x} < {low}, {low}, {x})"
    return x if high is None else f"_smaller({x}, {high})"
