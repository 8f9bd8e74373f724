"""C++ of a step whose rows are on chip: what is measured of a row, and its elements' results."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import NotCoveredError, merged
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.lanes import InLanes
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.loops import coordinates, offset_at, stem_of
from kopt_starters.codegen.writer import Load, Writer, identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt_starters.codegen.axes import Places
    from kopt_starters.codegen.steps import Reduction, Step
    from kopt_starters.graph import Value

DEVICE = "__device__ __forceinline__"
_TYPES = {
    "sum": ("Sum", 1), "prod": ("Product", 1), "max": ("Extreme<1>", 1), "min": ("Extreme<-1>", 1),
    "moments": ("Moments", 3), "softmax": ("Powers<false>", 2), "logsumexp": ("Powers<true>", 2),
}  # fmt: skip
"""By kind: the struct in ``row_statistics.cu``, and how many floats it has."""
_READ = ("value()", "spread()")


@dataclass
class ClusterRows:
    """Writes what ``rows_cluster.cu`` leaves open for a step with one row of ``x`` for each result.

    Arguments that have one element for a row are read with it. Methods raise NotCoveredError where
    another argument moves along a row, where dtypes differ, and for statistics of other kinds.
    """

    step: Step
    lanes: InLanes = field(default_factory=lambda: InLanes(DEVICE))
    values: dict[str, Load] = field(default_factory=dict)
    """What is read once for a row, by its name in ``Row``."""
    fixed: list[tuple[int, str]] = field(default_factory=list)
    """Lines that hold for a whole row, with the levels that have to be known before."""

    def __post_init__(self) -> None:
        """Raise NotCoveredError where the result's rows are not those of one argument."""
        step, dtype = self.step, self.step.result.dtype
        alike = all(load.argument.dtype == dtype for load in step.loads)
        if not step.full or not step.rowwise or step.scalars or not alike:
            raise NotCoveredError("rows of other than one argument's elements")
        moving = [load for load in step.loads if self._moves(load)]
        together = [load.strides for load in moving] + [step.steps]
        groups = merged([*step.kept, *step.reduced], together)
        if len({load.pointer for load in moving}) != 1 or len(groups) != 1:
            raise NotCoveredError("rows that do not lie together")
        if any(strides.get(groups[0][-1]) != 1 for strides in together):
            raise NotCoveredError("rows whose elements lie apart")
        self.x = moving[0].argument

    def _moves(self, load: Load) -> bool:
        return any(load.strides.get(axis) for axis in self.step.reduced)

    @property
    def state_bytes(self) -> int:
        """Size of the largest level."""
        return max(
            4 * sum(_type(each)[1] for each in self.step.at_level(level))
            for level in range(self.step.levels)
        )

    def functions(self) -> str:
        """Return the struct of what is known of a row, and functions of an element and that."""
        terms = [
            self._function(name_of(each), each.node.tensors[0], each.inner, each.level)
            for each in self.step.reductions
        ]
        terms.append(self._function("result", self.step.result, self.step.places, self.step.levels))
        knowing = [self._knowing(level) for level in sorted({at for at, _ in self.fixed})]
        fields = ", ".join(self._known(self.step.levels))
        struct = f"struct Row {{\n    float {fields};\n}};\n"
        return "\n".join([struct, self.lanes.functions(), *knowing, *terms]).rstrip("\n")

    def levels(self) -> str:
        """Return a struct for what is measured in each sweep over a row."""
        return "\n\n".join(self._level(level) for level in range(self.step.levels))

    def parameters(self) -> dict[str, Value]:
        """Return parameters of the kernel, with the arguments to pass, for what is read by row."""
        return {load.pointer: load.argument for load in self.values.values()}

    def read(self) -> Iterator[str]:
        """Yield lines that read a row's own arguments."""
        for name, load in self.values.items():
            where = coordinates(self.step.kept, [load.strides], "k")
            yield f"row.{name} = wide({load.pointer}[{offset_at(load.strides, where)}]);"

    def measure(self) -> Iterator[str]:
        """Yield lines that fill in what is measured of a row."""
        for level in range(self.step.levels):
            yield from self._know(level)
            seen = f"measured<Level{level}>(held, share, row)"
            yield f"const Level{level} level{level} = exchange.joined({seen});"
            for each in self.step.at_level(level):
                for state, form in zip(each.states, _READ, strict=False):
                    yield f"row.{state} = level{level}.{stem_of(each)}.{form};"
        yield from self._know(self.step.levels)

    def _know(self, level: int) -> list[str]:
        return [f"know{level}(row);"] if any(at == level for at, _ in self.fixed) else []

    def _known(self, level: int) -> list[str]:
        """Return what is known of a row before a level is measured, by its names in ``Row``."""
        before = [r for below in range(level) for r in self.step.at_level(below)]
        fixed = [line.split(" = ")[0] for at, line in self.fixed if at <= level]
        return [*(state for each in before for state in each.states), *self.values, *fixed]

    def _knowing(self, level: int) -> str:
        """Return the function that computes what holds for a row once ``level`` levels are known."""
        lines = [line for at, line in self.fixed if at == level]
        names = [line.split(" = ")[0] for line in lines]
        known = [each for each in self._known(level) if each not in names]
        body = [*self._read(known, lines), *self.lanes.body(lines)]
        body += [f"row.{name} = {name};" for name in names]
        return f"{DEVICE} void know{level}(Row &row) {{\n{indented(body)}\n}}\n"

    @staticmethod
    def _read(known: Iterable[str], lines: Iterable[str]) -> list[str]:
        """Return lines that read what others use of a row."""
        used = {word for line in lines for word in re.findall(r"\w+", line)}
        return [f"const lanes {name} = row.{name};" for name in known if name in used]

    def _function(self, name: str, value: Value, places: Places, level: int) -> str:
        """Return the function of an element ``x`` that computes a value, once levels are known.

        What does not depend on the element becomes known of the row.
        """
        writer = Writer(self.step.graph, self._load, self._bound, prefix=f"{name}_")
        term = writer.value(value, places)
        if term.kind != "float":
            raise NotCoveredError("values that are not floating")
        lines, varying = [], {"x"}
        for line in writer.lines:
            made, text = line.split(" = ", 1)
            if varying & set(re.findall(r"\w+", text)):
                lines.append(line)
                varying.add(made)
            else:
                self.fixed.append((level, line))
        returned = f"return {f'all({term.text})' if term.literal else term.text};"
        body = [*self._read(self._known(level), [*lines, returned]), *self.lanes.body(lines)]
        inside = indented([*body, returned])
        return f"{DEVICE} lanes {name}(lanes x, const Row &row) {{\n{inside}\n}}\n"

    def _load(self, wanted: Load) -> Term:
        if self._moves(wanted):
            return Term("x", "float")
        for name, known in self.values.items():
            if known == wanted:
                return Term(name, "float")
        name = f"{identifier(wanted.argument.name)}_{len(self.values)}"
        self.values[name] = wanted
        return Term(name, "float")

    def _bound(self, value: Value, places: Places) -> Term | None:
        known = self.step.reduction_of(value)
        return Term(known[0].states[known[1]], "float") if known else None

    def _level(self, level: int) -> str:
        each = [(stem_of(r), _type(r)[0], name_of(r)) for r in self.step.at_level(level)]
        takes = [
            f"{stem}.include(mapped(x, [&](lanes value) {{ return {term}(value, row); }}));"
            for stem, _, term in each
        ]
        return "\n".join([
            f"struct Level{level} {{",
            *(f"    {kind} {stem};" for stem, kind, _ in each),
            f"    {DEVICE} void include(const Values &x, const Row &row) {{",
            indented(takes, 8),
            "    }",
            f"    {DEVICE} void add(lanes x, const Row &row) {{",
            indented([f"{stem}.add({term}(x, row));" for stem, _, term in each], 8),
            "    }",
            f"    {DEVICE} void join(const Level{level} &other) {{",
            indented([f"{stem}.join(other.{stem});" for stem, _, _ in each], 8),
            "    }",
            "};",
        ])  # fmt: skip


def name_of(reduction: Reduction) -> str:
    """Return the function that computes what is reduced."""
    return f"of_{stem_of(reduction)}"


def _type(reduction: Reduction) -> tuple[str, int]:
    kind = reduction.statistic.kind
    if kind not in _TYPES or reduction.statistic.of != "float":
        raise NotCoveredError(f"{kind} of rows on chip")
    return _TYPES[kind]
