"""Kernels that hold for other extents of the leading axis, as of a batch, and their launchers' text.

The trace is of one shape. Where the leading axis is only gone along, never reduced, split or read in
another way, its extent appears in the grid, the masks and the result's shape alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.rewriting import Made
from kopt_starters.codegen.writer import RULES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kopt_starters.codegen.axes import Axis
    from kopt_starters.codegen.writer import Load
    from kopt_starters.graph import Graph, Node

_MAKING = frozenset({"arange", "expand", "full", "ones", "repeat", "zeros"})
"""Operators whose results may be larger than all that they are given."""
EXTENT = "_n"
"""The launcher's variable: the leading extent that it was given."""


@dataclass(frozen=True)
class Leading:
    """A leading axis that may be shorter than it was."""

    extent: int
    """As it was in the trace: the most that index widths are chosen for."""
    names: frozenset[str]
    """The tensors that it is the first dimension of; others do not have it."""

    @staticmethod
    def sizes(leading: Leading | None, shape: Sequence[int]) -> list[str]:
        """Return a shape's extents as expressions of the launcher; numbers without a leading axis."""
        first = [leading.count(shape[0])] if leading else [*map(str, shape[:1])]
        return [*first, *map(str, shape[1:])]

    @staticmethod
    def shape(leading: Leading | None, shape: Sequence[int]) -> str:
        """Return a shape as an expression of the launcher; see ``sizes``."""
        sizes = Leading.sizes(leading, shape)
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def count(self, count: int) -> str:
        """Return a count that grows with the leading extent as an expression of the launcher."""
        times, rest = divmod(count, self.extent)
        assert not rest, f"{count} does not grow with {self.extent}"
        return EXTENT if times == 1 else f"{EXTENT} * {times}"


def along(lead: Axis, axes: Iterable[Axis], loads: Collection[Load]) -> Leading | None:
    """Return the leading axis where ``loads`` read each tensor along it, or not at all.

    ``axes`` are all that are gone along. None where a tensor has it, but not as its first dimension,
    and where no tensor has one of the axes: its extent may then be the leading one's in disguise.
    """
    led, fixed = set(), set()
    for load in loads:
        step, tensor = load.strides.get(lead, 0), load.argument
        if not step:
            fixed.add(tensor.name)
        elif tensor.shape[0] != lead.extent or step * lead.extent != tensor.elements:
            return None
        else:
            led.add(tensor.name)
    held = all(any(load.strides.get(axis) for load in loads) for axis in axes)
    return Leading(lead.extent, frozenset(led)) if held and led and not led & fixed else None


def independent(graph: Graph, extent: int) -> bool:
    """Whether the trace would be the same at another leading extent, but for shapes.

    A constant may be made of the extent, as ``1 / x.shape[0]``; a ``squeeze`` may find it to be 1.
    """
    shapes = {value.shape for node in graph.nodes for value in (*node.tensors, *node.outputs)}
    sizes = {size for shape in shapes if extent in shape for size in _sizes(extent, shape)}
    squeezed = any(extent in _looked_at(n) for n in graph.nodes if n.operator == "squeeze")
    return not squeezed and not counted(graph, sizes)


def _looked_at(squeeze: Node) -> list[int]:
    """Return the extents that a squeeze leaves out where they are 1."""
    shape, dims = squeeze.tensors[0].shape, squeeze.argument(1, "dim")
    if dims is None or not shape:
        return [*shape]
    given = dims if isinstance(dims, tuple) else (dims,)
    return [shape[dim] for dim in given if isinstance(dim, int)]


def pinned(graph: Graph) -> bool:
    """Whether pieces of a graph that hold for less of its leading axis may be wrong together.

    A constant in one piece may be made of an extent that another one reads, or a tensor repeated so
    many times that was no argument.
    """
    extent = graph.result.shape[0] if graph.result and graph.result.shape else 1
    repeated = any(
        extent in node.output.shape and not any(extent in given.shape for given in node.tensors)
        for node in graph.nodes if node.operator in _MAKING
    )  # fmt: skip
    return extent > 1 and (repeated or not independent(graph, extent))


def _sizes(extent: int, shape: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of elements of some dimensions, of which one has this extent."""
    others = list(shape)
    others.remove(extent)
    for count in range(len(others) + 1):
        yield from (extent * prod(some) for some in combinations(others, count))


def counted(graph: Graph, sizes: Iterable[int]) -> bool:
    """Whether a number that is calculated with may be made of one of these sizes, as 1 / n is."""
    derived = [v for n in sizes if n > 1 for v in (n, n - 1, 1 / n, n**0.5, n**-0.5)]
    numbers = [
        given
        for node in graph.nodes if node.operator in RULES
        for given in (*node.given, *node.named.values())
        if isinstance(given, int | float) and not isinstance(given, bool | Made)
        and given not in (0, 1)
    ]  # fmt: skip
    return any(math.isclose(a, b, rel_tol=1e-6) for a in numbers for b in derived)
