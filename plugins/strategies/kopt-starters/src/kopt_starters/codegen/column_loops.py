"""C++ of a step over blocks of columns: vectors across what is reduced, each lane a column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import Axis, merged
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.loops import (
    Body,
    Loops,
    as_lanes,
    coordinates,
    stem_of,
    strides_in,
)

if TYPE_CHECKING:
    pass


class ColumnLoops(Loops):
    """Each block is swept once for each level of its reductions; its states lie in the first cache."""

    def lines(self) -> Iterator[str]:
        """Yield the function's body."""
        step = self.step
        accesses = [step.steps, *strides_in(step.loads)]
        groups = merged(step.kept, accesses)
        lane, columns = groups[-1][-1], prod(axis.extent for axis in groups[-1])
        width, others = str(columns), str(step.rows // columns)
        if step.leading and step.kept[0] in groups[-1]:
            width = step.leading.count(columns)
        elif step.leading:
            others = step.leading.count(step.rows // columns)
        outer = [axis for group in groups[:-1] for axis in group]
        where = coordinates(outer, accesses, "k")
        yield f"const int64_t blocks = ({width} + BLOCK - 1) / BLOCK;"
        yield f"each<{self.sharing}>({others} * blocks, [&](int64_t task) {{"
        yield "    const int64_t k = task / blocks, start = task % blocks * BLOCK;"
        yield f"    const int64_t width = {width} - start < BLOCK ? {width} - start : BLOCK;"
        yield "    (void)k;"
        for level in range(self.levels):
            yield indented(self._sweep(level, where, lane))
        yield indented(self._result(where, lane))
        yield "});"

    def _sweep(self, level: int, where: Mapping[Axis, str], lane: Axis) -> Iterator[str]:
        reductions, kind = self.step.at_level(level), self.level_name(level)
        body = self.body([(each.node.tensors[0], each.inner) for each in reductions])
        there = {**where, **coordinates(self.step.reduced, strides_in(body.loads.values()), "r")}
        yield f"{kind} level{level}[BLOCK / LANES];"
        yield f"down<{self.sharing}>(level{level}, {self.step.cols}, width,"
        yield f"    [&]({kind}& to, int64_t r, int64_t at, int64_t count) {{"
        yield from (f"        {line}" for line in self._column_reads(body, there, lane, "near"))
        yield from (f"        {line}" for line in body.lines)
        for each, term in zip(reductions, body.terms, strict=True):
            yield f"        to.{stem_of(each)}.add({as_lanes(term)}, r, LANES);"
        yield "    });"
        read = list(self.read_states(level, f"level{level}[at / LANES]"))
        yield from (f"float {name}_all[BLOCK + LANES];" for name, _ in read)
        if read:
            yield "for (int64_t at = 0; at < width; at += LANES) {"
            yield from (f"    store({name}_all + at, {text});" for name, text in read)
            yield "}"

    def _column_reads(
        self, body: Body, where: Mapping[Axis, str], lane: Axis, read: str = "parameters"
    ) -> list[str]:
        before, after = self.reads(body, where, lane, read, "start + at")
        states = [state for each in self.step.reductions for state in each.states]
        named = set(re.findall(r"\w+", " ".join([*body.lines, *(t.text for t in body.terms)])))
        known = [f"const lanes {n} = load({n}_all + at);" for n in states if n in named]
        return [*before, *after, *known]

    def _result(self, where: Mapping[Axis, str], lane: Axis) -> Iterator[str]:
        position = self.position("level{level}[at / LANES]", "at % LANES")
        if position is not None:
            to = self.written(where, lane)
            yield f"for (int64_t at = 0; at < width; ++at) out[({to}) + start + at] = {position};"
            return
        body = self.body([(self.step.result, self.step.places)])
        full = self.step.full
        accesses = [self.step.steps, *strides_in(body.loads.values())]
        there = {**where, **(coordinates(self.step.reduced, accesses, "r") if full else {})}
        if full:
            count = self.step.cols
            yield f"parts_of<{self.sharing}>({count}, 1, [&](int64_t, int64_t begin, int64_t end) {{"
            yield "for (int64_t r = begin; r < end; ++r)"
        to = self.written(there, lane)
        yield f"    write_range(out + ({to}) + start, 0, width, [&](int64_t at, int64_t count) {{"
        yield "        (void)at, (void)count;"
        yield from (f"        {line}" for line in self._column_reads(body, there, lane))
        yield from (f"        {line}" for line in body.lines)
        yield f"        return {as_lanes(body.terms[0])};"
        yield "    });"
        if full:
            yield "});"
