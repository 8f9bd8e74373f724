"""What the C++ of a step has in common, whether vectors go along what is reduced or across it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import Axis, NotCoveredError, Places, merged
from kopt_starters.codegen.epilogue import parts_of
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.leading import EXTENT
from kopt_starters.codegen.writer import Load, Writer, offset, scalar_names

if TYPE_CHECKING:
    from kopt_starters.codegen.axes import Strides
    from kopt_starters.codegen.lanes import InLanes
    from kopt_starters.codegen.steps import Reduction, Step
    from kopt_starters.graph import Value

_TYPES = {
    "sum": "Sum", "prod": "Product", "max": "Extreme<1>", "min": "Extreme<-1>",
    "argmax": "Place<1, {step}>", "argmin": "Place<-1, {step}>", "moments": "Moments",
}  # fmt: skip
_READ = {"moments": ("value()", "spread()")}


@dataclass(frozen=True)
class Body:
    """What is computed for one vector: its reads, then lines, then the variables of its values."""

    loads: dict[str, Load]
    """By variable."""
    lines: list[str]
    terms: list[Term]


@dataclass(frozen=True)
class Loops(ABC):
    """Writes the function of one step; ``name`` keeps it apart from those of other steps.

    ``shared``: all threads work on each row, or on each block of columns.
    """

    step: Step
    lanes: InLanes
    shared: bool
    name: str = ""

    @property
    def arguments(self) -> dict[str, Value]:
        """Pointer parameters with the tensors to pass."""
        return {load.pointer: load.argument for load in self.step.loads}

    @property
    def scalars(self) -> list[str]:
        """Scalar parameters: the entry's arguments, and ``_value``."""
        return sorted(self.step.scalars)

    def function(self) -> str:
        """Return the structs of its statistics, and the function."""
        lines = [*self.lines()]
        out = "int64_t" if self.step.result.dtype == "int64" else "float"
        pointers = [f"const float* {name}" for name in self.arguments]
        given = [*pointers, f"{out}* out", *(f"lanes {n}" for n in self.scalars)]
        given += [f"int64_t {EXTENT}"] if self.step.leading else []
        parameters = ", ".join(given)
        structs = [self._struct(level) for level in range(self.levels)]
        opening = f"static void step{self.name}({parameters}) {{"
        return "\n".join([*structs, opening, indented(lines), "}", ""])

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the function's body."""

    @property
    def levels(self) -> int:
        """Sweeps before the result is written."""
        return self.step.levels if self.step.reductions else 0

    def _struct(self, level: int) -> str:
        step = int(self.step.rowwise)
        states = [(stem_of(each), _type(each, step)) for each in self.step.at_level(level)]
        name = self.level_name(level)
        joins = " ".join(f"{stem}.join(other.{stem});" for stem, _ in states)
        gathers = " ".join(f"{stem}.gather();" for stem, _ in states)
        return "\n".join([
            f"struct {name} {{",
            *(f"    {kind} {stem};" for stem, kind in states),
            f"    void join(const {name}& other) {{ {joins} }}",
            f"    void gather() {{ {gathers} }}",
            "};",
        ])  # fmt: skip

    def level_name(self, level: int) -> str:
        """Return the struct of a level's statistics."""
        return f"Level{self.name}_{level}"

    def read_states(self, level: int, of: str) -> Iterator[tuple[str, str]]:
        """Yield the variable of each state of a level, and how it is read of ``of``."""
        for each in self.step.at_level(level):
            if each.statistic.kind.startswith("arg"):
                continue
            forms = _READ.get(each.statistic.kind, ("value()",))
            for state, form in zip(each.states, forms, strict=True):
                yield state, f"{of}.{stem_of(each)}.{form}"

    @property
    def sharing(self) -> str:
        """``shared`` in C++."""
        return "true" if self.shared else "false"

    def body(self, values: Sequence[tuple[Value, Places]]) -> Body:
        """Return what computes values at places. Raises NotCoveredError for other than float32."""
        loads: dict[str, Load] = {}

        def load(wanted: Load) -> Term:
            if wanted.argument.dtype != "float32":
                raise NotCoveredError("an argument that is not float32")
            name = f"x{len(loads)}"
            loads[name] = wanted
            return Term(name, "float")

        def bound(value: Value, places: Places) -> Term | None:
            known = self.step.reduction_of(value)
            if known is None:
                return None
            reduction, number = known
            if reduction.statistic.outputs[number] != "float" or (
                reduction.statistic.kind.startswith("arg")
            ):
                raise NotCoveredError("arithmetic with positions")
            return Term(reduction.states[number], "float")

        writer = Writer(self.step.graph, load, bound, scalar_names(self.step.graph))
        terms = [writer.value(value, places) for value, places in values]
        if any(term.kind != "float" for term in terms):
            raise NotCoveredError("values that are not float32")
        return Body(loads, self.lanes.body(writer.lines), terms)

    def reads(
        self, body: Body, where: Mapping[Axis, str], lane: Axis | None, read: str, at: str = "at"
    ) -> tuple[list[str], list[str]]:
        """Return lines before the loop over vectors, and in it, that set the variables of loads.

        ``where`` are coordinates of all axes but those of ``lane``, along which vectors go from
        element ``at``; ``read`` is the function of C++ that reads one.
        """
        before, inside = [], []
        for name, load in body.loads.items():
            step = load.strides.get(lane, 0) if lane is not None else 0
            place = f"{load.pointer} + ({offset_at(load.strides, where)})"
            if not step:
                before.append(f"const lanes {name} = all(*({place}));")
                continue
            before.append(f"const float* const {name}_from = {place};")
            if step == 1:
                inside.append(f"const lanes {name} = {read}({name}_from + {at}, count);")
            else:
                first = f"{name}_from + ({at}) * {step}"
                inside.append(f"const lanes {name} = apart({first}, {step}, count);")
        return before, inside

    def written(self, where: Mapping[Axis, str], lane: Axis | None) -> str:
        """Return where in the result a stretch begins. Raises where lanes are no neighbours in it."""
        if lane is not None and self.step.steps.get(lane, 0) != 1:
            raise NotCoveredError("a result that is written in another order")
        return offset_at(self.step.steps, where)

    def position(self, level: str, lane: str) -> str | None:
        """Return the position of an extreme where that is the result, else None."""
        if self.step.result.dtype != "int64":
            return None
        for each in self.step.reductions:
            if each.statistic.kind.startswith("arg") and self._is_position(each):
                return f"{level.format(level=each.level)}.{stem_of(each)}.position({lane})"
        raise NotCoveredError("a result of integers")

    def _is_position(self, reduction: Reduction) -> bool:
        """Only moves and casts lead from a reduction's positions to the result."""
        value, graph = self.step.result, self.step.graph
        while value.name != reduction.node.outputs[1].name:
            node = graph.producer(value)
            if node is None or node.operator not in ("view", "_to_copy", "squeeze", "unsqueeze"):
                return False
            value = node.tensors[0]
        return self.step.cols < 2**31


def stem_of(reduction: Reduction) -> str:
    """Return the member of a level's struct that a reduction is."""
    return reduction.states[0].removesuffix("_0")


def _type(reduction: Reduction, step: int) -> str:
    kind = reduction.statistic.kind
    if kind not in _TYPES or reduction.statistic.of != "float":
        raise NotCoveredError(f"{kind} in C++")
    return _TYPES[kind].format(step=step)


def as_lanes(term: Term) -> str:
    """Return a term as a vector."""
    return f"all({term.text})" if term.literal else term.text


def strides_in(loads: Iterable[Load]) -> list[Strides]:
    """Return how loads move."""
    return [load.strides for load in loads]


def offset_at(strides: Strides, where: Mapping[Axis, str]) -> str:
    """Return an offset in C++ over the axes that have a coordinate."""
    moving = {axis: step for axis, step in strides.items() if step and axis in where}
    return offset(moving, where).replace("//", "/")


def coordinates(axes: Sequence[Axis], accesses: Sequence[Strides], name: str) -> dict[Axis, str]:
    """Return coordinates of groups of axes, by their last, where ``name`` counts through all."""
    groups = merged(axes, accesses)
    lasts = [Axis(prod(axis.extent for axis in group)) for group in groups]
    texts = parts_of(lasts, name) if len(groups) > 1 else dict.fromkeys(lasts, name)
    return {group[-1]: texts[last] for group, last in zip(groups, lasts, strict=True)}
