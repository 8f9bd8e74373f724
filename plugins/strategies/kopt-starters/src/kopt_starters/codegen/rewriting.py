"""Replaces an operator of a graph by others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from kopt_starters.codegen.statistics import PREFIX
from kopt_starters.graph import Node, Value

if TYPE_CHECKING:
    from kopt_starters.graph import Given


class Made(float):
    """A constant that a rewrite made: not an argument of the reference, whatever its value."""


class Parts:
    """Collects the operators that replace one; their values are named after its first output."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.nodes: list[Node] = []

    def add(self, operator: str, *given: Given, shape: tuple[int, ...], out: Value | None = None,
            dtype: str = "float32") -> Value:  # fmt: skip
        """Append an operator; its output is ``out``, or new."""
        out = out or Value(f"{self.node.output.name}_{len(self.nodes)}", shape, dtype)
        self.nodes.append(Node(operator, "", given, {}, (out,)))
        return out

    def reduce(self, kind: str, x: Value, dims: tuple[int, ...],
               dtypes: tuple[str, ...] = ("float32",)) -> tuple[Value, ...]:  # fmt: skip
        """Append a reduction that keeps its dimensions."""
        shape = tuple(1 if dim in dims else extent for dim, extent in enumerate(x.shape))
        name = f"{self.node.output.name}_{len(self.nodes)}"
        outputs = tuple(Value(f"{name}_{n}", shape, dtype) for n, dtype in enumerate(dtypes))
        self.nodes.append(Node(f"{PREFIX}{kind}", "", (x, dims), {}, outputs))
        return outputs

    def finish(self, value: Value, out: Value | None = None) -> None:
        """Append what makes ``value`` the operator's output: another shape, another dtype."""
        out = out or self.node.output
        if value.shape != out.shape:
            value = self.add("view", value, out.shape, shape=out.shape, dtype=value.dtype)
        self.add("_to_copy", value, shape=out.shape, out=out)


Rewrite: TypeAlias = Callable[[Parts], None]
"""Adds the operators that replace one."""


def input_of(parts: Parts) -> Value:
    """Return what the operator is given first."""
    x = parts.node.given[0]
    assert isinstance(x, Value)
    return x


def dims_of(parts: Parts, position: int = 1, name: str = "dim") -> tuple[int, ...]:
    """Return the reduced dimensions, sorted; all of them where none are named."""
    rank = len(input_of(parts).shape)
    given = parts.node.argument(position, name)
    if isinstance(given, int) and not isinstance(given, bool):
        given = (given,)
    if not isinstance(given, tuple) or not given:
        return tuple(range(rank))
    return tuple(sorted({int(dim) % max(rank, 1) for dim in given}))  # type: ignore[arg-type]


def count_of(parts: Parts, dims: Iterable[int]) -> int:
    """Return how many elements those dimensions have together."""
    return prod(input_of(parts).shape[dim] for dim in dims)
