"""Writes Triton lines that compute values of a graph at coordinates, from arguments upwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kopt_starters.codegen.activations import ACTIVATIONS, LOSSES
from kopt_starters.codegen.arithmetic import ARITHMETIC
from kopt_starters.codegen.axes import (
    MOVES,
    SAME,
    Axis,
    NotCoveredError,
    Places,
    Strides,
    before_move,
    broadcast,
    leaves,
    strides_of,
)
from kopt_starters.codegen.functions import Call, Rule, Term, kind_of, literal
from kopt_starters.graph import Graph, Node, Value

if TYPE_CHECKING:
    from kopt_starters.graph import Given

RULES: dict[str, Rule] = {**ARITHMETIC, **ACTIVATIONS}
"""What each element-wise operator computes, by its name."""
Key: TypeAlias = tuple[str, tuple[tuple[int, ...], ...]]


def key_of(value: Value, places: Places) -> Key:
    """Return what is equal where a value is read at the same coordinates."""
    return value.name, tuple(tuple(id(axis) for axis in dim) for dim in leaves(places))


def identifier(name: str) -> str:
    """Return the name of an argument or a piece of state as a kernel's parameter."""
    return re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class Load:
    """An argument as it is read: ``strides`` say how far each axis moves in it."""

    argument: Value
    strides: Strides

    @property
    def pointer(self) -> str:
        """Name of the kernel's pointer parameter for it."""
        return f"{identifier(self.argument.name)}_ptr"


def elementwise_rule(node: Node) -> Callable[[Call], str] | None:
    """Return how an element-wise operator is written; None where it is none."""
    if node.operator in ("max", "min") and node.overload == "other":
        return RULES["maximum" if node.operator == "max" else "minimum"]
    if node.operator in LOSSES and node.argument(2, "reduction", 1) not in (0, "none"):
        return None
    return RULES.get(node.operator)


def scalar_names(graph: Graph) -> dict[float, str]:
    """Return the kernel's parameters for float arguments, by value, where values are not shared.

    A trace shows a float argument as a constant: one with this value is taken to be it.
    """
    found: dict[float, list[str]] = {}
    for argument in graph.arguments:
        if argument.kind == "scalar" and isinstance(argument.value, float):
            found.setdefault(argument.value, []).append(f"{identifier(argument.name)}_value")
    return {value: names[0] for value, names in found.items() if len(names) == 1}


@dataclass
class Writer:
    """Appends to ``lines``; ``load`` reads an argument and returns its variable.

    ``bound`` are values that are known already at some coordinates, as a reduction's result.
    ``scalars`` are float arguments by value; those used end up in ``used``.
    Methods raise NotCoveredError where a value is not element-wise over arguments and bound values.
    """

    graph: Graph
    load: Callable[[Load], Term]
    bound: Callable[[Value, Places], Term | None] = lambda value, places: None
    scalars: Mapping[float, str] = field(default_factory=dict)
    prefix: str = "v"
    lines: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    _known: dict[Key, Term] = field(default_factory=dict)
    _loaded: dict[tuple[str, tuple[tuple[int, int], ...]], Term] = field(default_factory=dict)

    def assign(self, expression: str, kind: str) -> Term:
        """Write ``expression`` into a new variable."""
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return Term(name, kind)  # type: ignore[arg-type]

    def value(self, value: Value, places: Places) -> Term:
        """Write what computes a value at these places and return its variable."""
        key = key_of(value, places)
        if key not in self._known:
            found = self._value(value, places)
            self._known[key_of(value, places)] = found
            return found
        return self._known[key]

    def _value(self, value: Value, places: Places) -> Term:
        known = self.bound(value, places)
        if known is not None:
            return known
        node = self.graph.producer(value)
        if node is None:
            return self._argument(value, places)
        if node.operator in MOVES:
            inner = places if node.operator in SAME else before_move(node, places)
            return self.value(node.tensors[0], inner)
        return self._computed(node, places)

    def _argument(self, value: Value, places: Places) -> Term:
        load = Load(value, strides_of(places, value.shape))
        if self.graph.tensor(value.name) is None:
            raise NotCoveredError(f"{value.name} is made in a way that is not known")
        key = (value.name, tuple(sorted((id(a), s) for a, s in load.strides.items())))
        if key not in self._loaded:
            kind_of(value.dtype)
            self._loaded[key] = self.load(load)
        return self._loaded[key]

    def _computed(self, node: Node, places: Places) -> Term:
        rule = elementwise_rule(node)
        if rule is None:
            raise NotCoveredError(f"{node.operator} is not element-wise")

        def term(given: Given) -> Term:
            if isinstance(given, Value):
                return self.value(given, broadcast(places, given.shape))
            if type(given) is float and given in self.scalars:  # not one that a rewrite made
                self.used.add(self.scalars[given])
                return Term(self.scalars[given], "float")
            if isinstance(given, bool | int | float):
                return literal(given)
            raise NotCoveredError(f"{node.operator} is given {given!r}")

        return self.assign(rule(Call(node, term)), kind_of(node.output.dtype))


def as_loaded(expression: str, dtype: str) -> tuple[str, str]:
    """Return a ``tl.load`` as float32, int64 or bool, with its kind."""
    kind = kind_of(dtype)
    casts = {"float": ".to(tl.float32)", "int": ".to(tl.int64)", "bool": " != 0"}
    return (
        f"({expression}{casts[kind]})" if kind == "bool" else f"{expression}{casts[kind]}"
    ), kind


def offset(strides: Strides, coordinates: Mapping[Axis, str]) -> str:
    """Return how far from a tensor's first element it is read; ``0`` where it never moves."""
    terms = [
        coordinates[axis] if step == 1 else f"{coordinates[axis]} * {step}"
        for axis, step in strides.items() if step and axis in coordinates
    ]  # fmt: skip
    if len(terms) < sum(1 for step in strides.values() if step):
        raise NotCoveredError("a coordinate that is not there")
    return " + ".join(terms) or "0"
