"""C++ of a step over its rows: vectors along what is reduced, which lies together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import Axis, merged
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.loops import (
    Loops,
    as_lanes,
    coordinates,
    offset_at,
    stem_of,
    strides_in,
)
from kopt_starters.codegen.writer import Load

if TYPE_CHECKING:
    from kopt_starters.codegen.axes import Strides


class RowLoops(Loops):
    """Each row is swept once for each level of its reductions, then written if its result is a row."""

    def lines(self) -> Iterator[str]:
        """Yield the function's body."""
        yield f"each<{self.sharing}>({self.step.rows_text}, [&](int64_t k) {{"
        for level in range(self.levels):
            yield indented(self._sweep(level))
            for name, text in self.read_states(level, f"level{level}"):
                yield f"    const lanes {name} = {text};"
                yield f"    (void){name};"
        yield indented(self._result())
        yield "});"

    def _sweep(self, level: int) -> Iterator[str]:
        reductions, kind = self.step.at_level(level), self.level_name(level)
        body = self.body([(each.node.tensors[0], each.inner) for each in reductions])
        inner, where, lane = self._places(body.loads.values())
        before, after = self.reads(body, where, lane, "near")
        make = f"gathered<{self.sharing}, {inner}, {kind}>({self.step.cols},"
        yield f"const {kind} level{level} = {make}"
        yield f"    [&]({kind}* to, int64_t begin, int64_t end) {{"
        yield f"    stretches(begin, end, {inner}, [&](int64_t o, int64_t first, int64_t last) {{"
        yield from (f"        {line}" for line in before)
        yield f"        vectors<{inner}>(first, last, [&](int unrolled, int64_t at, int64_t count) {{"
        yield from (f"            {line}" for line in [*after, *body.lines])
        for each, term in zip(reductions, body.terms, strict=True):
            state = f"to[unrolled].{stem_of(each)}"
            yield f"            {state}.add({as_lanes(term)}, o * {inner} + at, count);"
        yield "        });"
        yield "    });"
        yield "});"

    def _result(self) -> Iterator[str]:
        if not self.step.full:
            yield from self._value()
            return
        body = self.body([(self.step.result, self.step.places)])
        inner, where, lane = self._places(body.loads.values(), self.step.steps)
        to = self.written(where, lane)
        yield f"parts_of<{self.sharing}>({self.step.cols}, 64, [&](int64_t, int64_t begin, int64_t end) {{"
        yield f"    stretches(begin, end, {inner}, [&](int64_t o, int64_t first, int64_t last) {{"
        before, after = self.reads(body, where, lane, "parameters")
        yield from (f"        {line}" for line in before)
        yield f"        write_range(out + ({to}), first, last, [&](int64_t at, int64_t count) {{"
        yield "            (void)at, (void)count;"
        yield from (f"            {line}" for line in [*after, *body.lines])
        yield f"            return {as_lanes(body.terms[0])};"
        yield "        });"
        yield "    });"
        yield "});"

    def _value(self) -> Iterator[str]:
        """Yield lines that store a row's only result."""
        position = self.position("level{level}", "0")
        steps = self.step.steps
        if position is not None:
            where = coordinates(self.step.kept, [steps], "k")
            yield f"out[{offset_at(steps, where)}] = {position};"
            return
        body = self.body([(self.step.result, self.step.places)])
        where = coordinates(self.step.kept, [steps, *strides_in(body.loads.values())], "k")
        before, _ = self.reads(body, where, None, "")
        yield from [*before, *body.lines]
        yield f"out[{offset_at(steps, where)}] = {as_lanes(body.terms[0])}[0];"

    def _places(
        self, loads: Iterable[Load], *written: Strides
    ) -> tuple[int, dict[Axis, str], Axis | None]:
        """Return the extent that vectors go along, coordinates of what is not, and its axis."""
        accesses = [*written, *strides_in(loads)]
        groups = merged(self.step.reduced, accesses)
        lane = groups[-1] if groups else ()
        outer = [axis for group in groups[:-1] for axis in group]
        where = coordinates(self.step.kept, accesses, "k") | coordinates(outer, accesses, "o")
        return prod(axis.extent for axis in lane), where, lane[-1] if lane else None
