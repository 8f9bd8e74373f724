"""A reference as a graph of framework operators, with shapes and dtypes, as families read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from kopt.model.flow import VIEWS

if TYPE_CHECKING:
    from kopt.model.problem import ArgumentInfo, Operand, OperatorCall, WorkloadSignature

Constant: TypeAlias = "bool | int | float | str | None"


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: an argument of the reference, or what an operator made."""

    name: str
    """An argument's name, or ``%3``."""
    shape: tuple[int, ...]
    dtype: str
    """As ``float32``."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


Given: TypeAlias = "Value | Constant | tuple[Given, ...]"
"""What an operator is given: a tensor, a constant, or a list of either."""


@dataclass(frozen=True)
class Node:
    """One operator with what it is given and what it makes."""

    operator: str
    """Without namespace and overload, as ``convolution``."""
    overload: str
    """As ``default`` or ``Tensor``."""
    given: tuple[Given, ...]
    """Positional arguments, in order."""
    named: Mapping[str, Given]
    """Arguments by name."""
    outputs: tuple[Value, ...]

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Every tensor that is given, in order, those in lists too."""
        return tuple(_tensors([*self.given, *self.named.values()]))

    def argument(self, position: int, name: str, default: Given = None) -> Given:
        """Return an argument that may be given by position or by name."""
        if position < len(self.given):
            return self.given[position]
        return self.named.get(name, default)


def _tensors(given: Sequence[Given]) -> Iterator[Value]:
    for each in given:
        if isinstance(each, Value):
            yield each
        elif isinstance(each, tuple):
            yield from _tensors(each)


@dataclass(frozen=True)
class Graph:
    """What one workload's reference does. Operators that nothing needs are left out."""

    call: WorkloadSignature
    arguments: tuple[ArgumentInfo, ...]
    """In the order in which a candidate's entry is called: arguments, then the module's state."""
    nodes: tuple[Node, ...]
    """In the order of the trace, which is a topological order."""
    results: tuple[Value, ...]
    """What the outputs are: values that an operator made."""
    _tensors: dict[str, Value] = field(repr=False, compare=False)

    @property
    def result(self) -> Value | None:
        """The only output; None where there are several."""
        return self.results[0] if len(self.results) == 1 else None

    def tensor(self, name: str) -> Value | None:
        """Return the tensor argument (or state) of that name; None where there is none."""
        return self._tensors.get(name)

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return {value.name: node for node in self.nodes for value in node.outputs}

    @cached_property
    def _users(self) -> dict[str, list[Node]]:
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(value.name for value in node.tensors):
                users.setdefault(name, []).append(node)
        return users

    def producer(self, value: Value) -> Node | None:
        """Return the operator that made a value; None for an argument."""
        return self._producers.get(value.name)

    def users(self, value: Value) -> list[Node]:
        """Return the operators that are given a value, in order."""
        return self._users.get(value.name, [])

    @classmethod
    def of(cls, call: WorkloadSignature) -> Graph | None:
        """Return a trace as a graph.

        What is changed in place is a new value from there on. None where it is not known what an
        operator was given, where an argument is changed, or a value that there is another view of,
        or where an output is no operator's.
        """
        tensors = {
            argument.name: Value(
                argument.name, argument.tensor.shape, _plain(argument.tensor.dtype)
            )
            for argument in call.arguments
            if argument.tensor is not None
        }
        reader = _Reader(dict(tensors))
        if not all(reader.read(each) for each in call.trace):
            return None
        nodes = reader.nodes
        results = _results(call, nodes, reader.values)
        if results is None:
            return None
        ordered = sorted(call.arguments, key=lambda argument: argument.kind == "state")
        return cls(call, tuple(ordered), tuple(_needed(nodes, results)), results, tensors)


class _Reader:
    """Goes through a trace and keeps which value each of its names stands for."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values
        self.nodes: list[Node] = []
        self._arguments = frozenset(values)
        self._viewed: set[str] = set()

    def read(self, call: OperatorCall) -> bool:
        """Add a call's node; False where it cannot be told what it does."""
        name, _, overload = call.name.removeprefix("aten.").partition(".")
        in_place = name.endswith("_") and not name.endswith("__")
        known = (call.operands or call.keywords) and len(call.dtypes) == len(call.outputs)
        if not known or in_place != any(output in self.values for output in call.outputs):
            return False
        if in_place and not self._may_change(call):
            return False
        if name in VIEWS:
            self._viewed |= {*call.inputs, *call.outputs}
        try:
            given = tuple(_given(each, self.values) for each in call.operands)
            named = {key: _given(each, self.values) for key, each in call.keywords.items()}
        except KeyError:
            return False
        outputs = self._outputs(call)
        if name == "lift_fresh" and given and not isinstance(given[0], Value):
            name = "scalar_tensor"  # of a number that the reference holds
        self.nodes.append(Node(name.removesuffix("_"), overload, given, named, outputs))
        return True

    def _may_change(self, call: OperatorCall) -> bool:
        changed = call.operands[0].tensor if call.operands else ""
        fixed = self._arguments | self._viewed
        return call.outputs == (changed,) and changed not in fixed

    def _outputs(self, call: OperatorCall) -> tuple[Value, ...]:
        """Return what a call makes, under names that nothing had before."""
        made = []
        for output, shape, dtype in zip(call.outputs, call.shapes, call.dtypes, strict=True):
            before = self.values.get(output)
            name = output if before is None else f"{before.name}'"
            self.values[output] = Value(name, shape, _plain(dtype))
            made.append(self.values[output])
        return tuple(made)


def _given(operand: Operand, values: Mapping[str, Value]) -> Given:
    if operand.tensor:
        return values[operand.tensor]
    if operand.items:
        return tuple(_given(item, values) for item in operand.items)
    return operand.value


def _plain(dtype: str) -> str:
    return dtype.removeprefix("torch.")


def _results(
    call: WorkloadSignature, nodes: Sequence[Node], values: Mapping[str, Value]
) -> tuple[Value, ...] | None:
    """Return the values that the outputs are; None where one cannot be found."""
    made = {value.name for node in nodes for value in node.outputs}
    named = [values.get(output.name) for output in call.outputs]
    if len(named) == 1 and named[0] is None:  # a single output has no name in the trace
        wanted = call.outputs[0].shape, _plain(call.outputs[0].dtype)
        last = (value for node in reversed(nodes) for value in node.outputs)
        like = next((value for value in last if (value.shape, value.dtype) == wanted), None)
        return None if like is None else (like,)
    found = [value for value in named if value is not None and value.name in made]
    return tuple(found) if len(found) == len(named) else None


def _needed(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    wanted = {value.name for value in results}
    found = []
    for node in reversed(nodes):
        if wanted.isdisjoint(value.name for value in node.outputs):
            continue
        found.append(node)
        wanted |= {value.name for value in node.tensors}
    return found[::-1]
