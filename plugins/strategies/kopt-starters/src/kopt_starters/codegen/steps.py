"""Cuts a graph into steps that a kernel does over tiles: what is kept times what is reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import (
    Axis,
    NotCoveredError,
    Places,
    flat,
    fresh,
    leaves,
    refit,
    strides_of,
)
from kopt_starters.codegen.functions import Term, kind_of
from kopt_starters.codegen.leading import Leading, along, independent
from kopt_starters.codegen.statistics import PREFIX, Statistic, statistic
from kopt_starters.codegen.writer import Load, Writer, scalar_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_starters.codegen.axes import Strides
    from kopt_starters.graph import Graph, Node, Value


@dataclass
class Reduction:
    """A reduction of a step: where it reads its input, and which sweep can do it."""

    node: Node
    statistic: Statistic
    inner: Places
    """Of the input, over the step's kept and reduced axes."""
    level: int
    """0 where it needs no other reduction, else one more than the highest that it needs."""

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the variables of its states."""
        stem = "s" + "".join(c if c.isalnum() else "_" for c in self.node.output.name)
        return tuple(f"{stem}_{n}" for n in range(len(self.statistic.types)))


@dataclass
class Step:
    """Reductions over the same axes with what leads to them and what follows them."""

    graph: Graph
    result: Value
    places: Places
    """Of the result."""
    kept: list[Axis] = field(default_factory=list)
    reduced: list[Axis] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    scalars: set[str] = field(default_factory=set)
    leading: Leading | None = None
    """The first kept axis, where kernels hold for fewer of it."""

    @property
    def full(self) -> bool:
        """The result has an element for every element that is reduced."""
        axes = set(flat(self.places))
        return bool(axes & set(self.reduced))

    @property
    def steps(self) -> Strides:
        """How each axis moves in the result."""
        return strides_of(self.places, self.result.shape)

    @property
    def rows(self) -> int:
        """Number of kept positions."""
        return prod(axis.extent for axis in self.kept)

    @property
    def rows_text(self) -> str:
        """Number of kept positions as an expression of the launcher."""
        return str(self.rows) if self.leading is None else self.leading.count(self.rows)

    @property
    def cols(self) -> int:
        """Number of elements that each reduction takes."""
        return prod(axis.extent for axis in self.reduced)

    @property
    def levels(self) -> int:
        """Sweeps that the reductions need."""
        return 1 + max(reduction.level for reduction in self.reductions)

    @property
    def rowwise(self) -> bool:
        """What is reduced lies together in the largest argument."""
        largest = max(self.loads, key=lambda load: load.argument.elements)
        near = min(((s, axis) for axis, s in largest.strides.items() if s), key=lambda p: p[0],
                   default=None)  # fmt: skip
        return near is None or near[1] in self.reduced

    def at_level(self, level: int) -> list[Reduction]:
        """Return the reductions of one sweep."""
        return [each for each in self.reductions if each.level == level]

    def reduction_of(self, value: Value) -> tuple[Reduction, int] | None:
        """Return the reduction that makes a value, with the number of its state."""
        for each in self.reductions:
            for n, output in enumerate(each.node.outputs):
                if output.name == value.name:
                    return each, n
        return None


def step_of(graph: Graph, result: Value) -> Step:
    """Return the step that computes a value. Raises NotCoveredError where one step cannot."""
    places, reduced = fresh(result.shape), None
    before = -1
    while True:  # a reshape found late splits what was read before
        walk = _Walk(Step(graph, result, places), reduced)
        step = walk.done()
        axes = flat(places) + [leaf for axis in walk.reduced or () for leaf in axis.leaves()]
        if len(axes) == before:
            return step
        before, reduced = len(axes), walk.reduced


class _Walk:
    """Finds a step's axes, reductions and loads, from its result upwards."""

    def __init__(self, step: Step, reduced: list[Axis] | None) -> None:
        self.step = step
        self.reduced = reduced
        self.kept: frozenset[Axis] | None = None

    def done(self) -> Step:
        step = self.step
        writer = Writer(step.graph, self._load, self._bound, scalar_names(step.graph))
        self._writer = writer
        writer.value(step.result, step.places)
        step.scalars = writer.used
        if not step.reductions or not step.loads or self.kept is None:
            raise NotCoveredError("no reduction")
        order = flat(step.places)
        kept = {leaf for axis in self.kept for leaf in axis.leaves()}
        step.kept = [axis for axis in order if axis in kept]
        step.reduced = [leaf for axis in self.reduced or () for leaf in axis.leaves()]
        if {*order} - {*step.kept} - {*step.reduced}:
            raise NotCoveredError("a result of other axes")
        if any(n in step.kept for n in step.reduced):
            raise NotCoveredError("a reduction of what another one keeps")
        return step

    def _load(self, wanted: Load) -> Term:
        self.step.loads.append(wanted)
        return Term("x", kind_of(wanted.argument.dtype))

    def _bound(self, value: Value, places: Places) -> Term | None:
        node = self.step.graph.producer(value)
        if node is None or not node.operator.startswith(PREFIX):
            return None
        known = self.step.reduction_of(value)
        if known is None:
            known = self._reduction(node, places), node.outputs.index(value)
        reduction, number = known
        self._agree(places)
        return Term("x", reduction.statistic.outputs[number])

    def _agree(self, places: Places) -> None:
        kept = frozenset(flat(places))
        if self.kept is None:
            self.kept = kept
        elif {leaf for axis in self.kept for leaf in axis.leaves()} != kept:
            raise NotCoveredError("reductions that keep different axes")

    def _reduction(self, node: Node, places: Places) -> Reduction:
        source, dims = node.given
        self._agree(places)
        extents = [source.shape[dim] for dim in dims]  # type: ignore
        if self.reduced is None:
            rest = [axis for axis in flat(self.step.places) if axis not in flat(places)]
            self.reduced = rest or [axis for dim in fresh(extents) for axis in dim]
        laid = dict(zip(dims, refit(self.reduced, extents), strict=True))  # type: ignore[arg-type]
        inner = tuple(laid.get(dim, place) for dim, place in enumerate(places))
        term = self._writer.value(source, inner)  # type: ignore[arg-type]
        needed = {each.output.name for each in _depends(self.step.graph, node)}
        before = [r.level for r in self.step.reductions if r.node.output.name in needed]
        of = statistic(node.operator, term.kind, prod(extents))
        reduction = Reduction(node, of, leaves(inner), 1 + max(before, default=-1))
        self.step.reductions.append(reduction)
        return reduction


def steps_of(graph: Graph, result: Value) -> list[Step]:
    """Return steps that compute a value one after the other, each of what those before made.

    Raises NotCoveredError where there are none, or more than three.
    """
    steps: list[Step] = []
    whole = graph
    for _ in range(3):
        try:
            steps.append(step_of(graph, result))
        except NotCoveredError as error:
            inner, graph = _first_of_two(graph, error)
            steps.append(inner)
            continue
        leading = _leading(whole, steps)
        for step in steps:
            step.leading = leading
        return steps
    raise NotCoveredError("more than three steps")


def _leading(graph: Graph, steps: Sequence[Step]) -> Leading | None:
    """Return the leading axis that every step keeps, and keeps first; None where there is none."""
    found = [led for step in steps if (led := _led(step)) is not None]
    if len(found) < len(steps) or len({led.extent for led in found}) > 1:
        return None
    names = frozenset[str]().union(*(led.names for led in found))
    read = [{load.argument.name for load in step.loads} for step in steps]
    fixed = {step.result.name for step in steps} - names  # what later steps need has it too
    if any(
        each & names != led.names or each & fixed for each, led in zip(read, found, strict=True)
    ):
        return None
    leading = Leading(found[0].extent, names)
    return leading if independent(graph, leading.extent) else None


def _led(step: Step) -> Leading | None:
    places = leaves(step.places)
    lead = next(iter(places[0]), None) if places else None
    if lead is None or lead not in step.kept[:1]:
        return None
    return along(lead, [*step.kept, *step.reduced], step.loads)


def _first_of_two(graph: Graph, error: NotCoveredError) -> tuple[Step, Graph]:
    """Return a step that can be done first, and the graph with what that makes as an argument."""
    for node in graph.nodes:
        if not node.operator.startswith(PREFIX) or not _depends(graph, node):
            continue
        for cut, rest in _cuts(graph, node):
            try:
                step = step_of(rest, cut)
            except NotCoveredError:
                continue
            if not step.full:
                return step, _after(rest, cut)
    raise error


def _depends(graph: Graph, node: Node) -> list[Node]:
    """Return the reductions that a reduction's input needs."""
    found, looking = [], list(node.tensors)
    while looking:
        maker = graph.producer(looking.pop())
        if maker is not None:
            looking += maker.tensors
            if maker.operator.startswith(PREFIX):
                found.append(maker)
    return found


def _cuts(graph: Graph, node: Node) -> Iterator[tuple[Value, Graph]]:
    """Yield what could be made first: a reduction's input, or the reduction over fewer dimensions."""
    yield node.tensors[0], graph
    source, dims = node.given
    kind = node.operator.removeprefix(PREFIX)
    if kind not in ("sum", "prod", "max", "min", "any", "all"):
        return
    for inner in _depends(graph, node):
        (below, fewer) = inner.given
        if below.shape != source.shape or not set(fewer) < set(dims):  # type: ignore
            continue
        shape = tuple(1 if d in fewer else n for d, n in enumerate(source.shape))  # type: ignore
        part = replace(node.output, name=f"{node.output.name}_part", shape=shape)
        first = replace(node, given=(source, fewer), outputs=(part,))
        rest = tuple(dim for dim in dims if dim not in fewer)  # type: ignore
        second = replace(node, given=(part, rest))
        nodes = [new for old in graph.nodes
                 for new in ((first, second) if old is node else (old,))]  # fmt: skip
        yield part, replace(graph, nodes=tuple(nodes))


def _after(graph: Graph, cut: Value) -> Graph:
    """Return the graph in which a value is an argument, what only it needs left out."""
    wanted = {value.name for value in graph.results}
    nodes = []
    for node in reversed(graph.nodes):
        if any(o.name in wanted and o.name != cut.name for o in node.outputs):
            nodes.append(node)
            wanted |= {value.name for value in node.tensors}
    known = {**graph._tensors, cut.name: cut}
    return replace(graph, nodes=tuple(reversed(nodes)), _tensors=known)
