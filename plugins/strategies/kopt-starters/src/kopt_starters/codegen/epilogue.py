"""What follows a heavy operator, fused into its kernel where it is element-wise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import (
    Axis,
    NotCoveredError,
    Places,
    flat,
    fresh,
    leaves,
    strides_of,
)
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.leading import Leading, along, independent
from kopt_starters.codegen.writer import Load, Writer, as_loaded, identifier, offset, scalar_names

if TYPE_CHECKING:
    from kopt_starters.graph import Graph, Value


@dataclass(frozen=True)
class Epilogue:
    """What a kernel does with an operator's element before it stores it. See ``epilogue``."""

    graph: Graph
    value: Value
    """The heavy operator's output."""
    result: Value
    """What is stored: as many elements, maybe in another order or shape, maybe of another dtype."""
    places: Places
    """Of ``value``, over the axes of ``result``."""
    _result_places: Places
    loads: tuple[Load, ...]
    scalars: dict[str, str]
    """Extra scalar parameters of the kernel, each with the entry's argument to pass."""
    others: tuple[Value, ...] = ()
    """What else the kernel has at the same coordinates, each of the shape of ``value``."""

    @property
    def in_order(self) -> bool:
        """The result's elements lie in memory in the order of those of ``value``."""
        return flat(self.places) == flat(self._result_places)

    @property
    def identity(self) -> bool:
        """Nothing is computed: the operator's element is stored as it is (at ``offset``)."""
        lines, variable = self.lines("x", ["0"] * len(self.value.shape))
        return not lines and variable == "x"

    @property
    def parameters(self) -> dict[str, str]:
        """Extra pointer parameters of the kernel, each with the entry's argument to pass.

        The launcher passes ``argument.contiguous()``.
        """
        return {load.pointer: identifier(load.argument.name) for load in self.loads}

    def leading(
        self, led: Sequence[Value], fixed: Iterable[Value], *, masked: bool = False
    ) -> Leading | None:
        """Return the leading axis, where the kernel, and what follows, hold for less of it.

        ``led`` are the operator's arguments whose first dimension ``value`` begins with; it reads
        all of each of those in ``fixed`` for every element along it. ``masked``: coordinates along
        it may lie beyond it, and only what is read with a mask knows.
        """
        outer, places = flat(self._result_places), leaves(self.places)
        if not outer or not places or places[0][:1] != (outer[0],):
            return None
        if self.result.shape[0] % outer[0].extent:  # a dimension of one before it
            return None
        moving = [load for load in self.loads if load.strides.get(outer[0])]
        if masked and not all(load.strides.get(axis) for load in moving for axis in outer):
            return None
        if any(self.graph.tensor(each.name) is None for each in led):
            return None
        given = [Load(each, {outer[0]: each.elements // each.shape[0]}) for each in led]
        given += [Load(each, {}) for each in fixed]
        found = along(outer[0], [], [*self.loads, *given])
        return found if found and independent(self.graph, found.extent) else None

    @property
    def reads(self) -> frozenset[str]:
        """Names (as in the graph) of the arguments that it reads."""
        return frozenset(load.argument.name for load in self.loads)

    def lines(
        self,
        variable: str,
        coordinates: Sequence[str],
        mask: str | None = None,
        others: Sequence[str] = (),
    ) -> tuple[list[str], str]:
        """Return Triton lines (not indented) and the variable that then holds the result.

        ``variable`` holds the operator's elements in float32. ``coordinates`` are Triton expressions
        for the coordinates of ``value``, one for each dimension, that broadcast to the variable's
        shape, as ``m[:, None]``. ``mask`` says which of them are inside: nothing is read elsewhere.
        ``others`` are the variables of the values of that name.
        The result is float32 (int64, bool): store it with ``.to(out.dtype.element_ty)``. Variables
        that the lines make begin with ``e_``. The module must hold ``helpers(lines)``.
        """
        where = self._coordinates(coordinates)
        within = self._coordinates(
            [
                f"tl.minimum({c}, {n - 1})"
                for c, n in zip(coordinates, self.value.shape, strict=True)
            ]
        )

        def load(wanted: Load) -> Term:
            # A mask would blow a row of parameters up to a tile: they are read at the last instead.
            everywhere = all(wanted.strides.get(axis) for axis in where)
            address = f"{wanted.pointer} + ({offset(wanted.strides, where)})"
            text = f"tl.load({address}, mask={mask}, other=0)"
            if mask is None or not everywhere:
                inner = where if mask is None else within
                text = f"tl.load({wanted.pointer} + ({offset(wanted.strides, inner)}))"
            return writer.assign(*as_loaded(text, wanted.argument.dtype))

        held = dict(zip([self.value, *self.others], [variable, *others], strict=True))

        def bound(value: Value, places: Places) -> Term | None:
            return Term(held[value], "float") if value in held else None

        writer = Writer(self.graph, load, bound, scalar_names(self.graph), prefix="e_")
        term = writer.value(self.result, self._result_places)
        return writer.lines, term.text

    def offset(self, coordinates: Sequence[str]) -> str:
        """Return where the element goes in the contiguous result, as an expression.

        The coordinates must be int64 where the result has 2**31 elements or more.
        """
        strides = strides_of(self._result_places, self.result.shape)
        return offset(strides, self._coordinates(coordinates))

    @staticmethod
    def helpers(lines: Sequence[str]) -> str:
        """Return the source of the Triton functions that lines call, for the kernel's module."""
        return helpers_for("\n".join(lines))

    def _coordinates(self, coordinates: Sequence[str]) -> dict[Axis, str]:
        """Return the coordinate of each axis, out of those of the operator's output."""
        return {
            axis: text
            for dim, name in zip(leaves(self.places), coordinates, strict=True)
            for axis, text in parts_of(dim, name).items()
        }


def parts_of(axes: Sequence[Axis], name: str) -> dict[Axis, str]:
    """Return each axis's coordinate, where ``name`` counts through all of them, the last fastest."""
    found = {}
    for at, axis in enumerate(axes):
        below = prod(inner.extent for inner in axes[at + 1 :])
        text = f"({name})" if below == 1 else f"({name}) // {below}"
        found[axis] = f"({text} % {axis.extent})" if at else f"({text})"
    return found


def epilogue(graph: Graph, value: Value, *others: Value) -> Epilogue | None:
    """Return what the graph does with an operator's output, up to its only result.

    None where anything after ``value`` is not element-wise or a move without repetition; where
    what follows needs another operator's output, unless it is one of ``others``; where one of
    these is not read, or they are read at two places at once; where the graph has several results.
    """
    result = graph.result
    if result is None or result.elements != value.elements or not value.elements:
        return None
    if any(other.shape != value.shape for other in others):
        return None
    try:
        return _epilogue(graph, (value, *others), result)
    except NotCoveredError:
        return None


def _epilogue(graph: Graph, values: tuple[Value, ...], result: Value) -> Epilogue:
    outer = fresh(result.shape)
    splits = -1
    while splits != len(flat(outer)):  # a reshape found late splits what was read before
        splits = len(flat(outer))
        loads: list[Load] = []
        seen: list[tuple[Value, Places]] = []

        def load(wanted: Load, loads: list[Load] = loads) -> Term:
            loads.append(wanted)
            return Term("x", "float")

        def bound(
            found: Value, places: Places, seen: list[tuple[Value, Places]] = seen
        ) -> Term | None:
            if found not in values:
                return None
            seen.append((found, places))
            return Term("x", "float")

        writer = Writer(graph, load, bound, scalar_names(graph))
        writer.value(result, outer)
    places = [leaves(each) for _, each in seen]
    if {value for value, _ in seen} != {*values}:
        raise NotCoveredError("an operator's output is not read")
    if any(each != places[0] for each in places[1:]):
        raise NotCoveredError("the operator's output is read at two places")
    if sorted(map(id, flat(places[0]))) != sorted(map(id, flat(outer))):
        raise NotCoveredError("the operator's output is repeated")
    scalars = {name: name.removesuffix("_value") for name in sorted(writer.used)}
    value, *others = values
    return Epilogue(
        graph, value, result, places[0], leaves(outer), tuple(loads), scalars, tuple(others)
    )
