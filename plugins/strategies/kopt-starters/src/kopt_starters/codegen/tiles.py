"""Kernels of a step: tiles of ROWS kept positions by BLOCK reduced elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kopt_starters.codegen.axes import Axis, Places, Strides, merged
from kopt_starters.codegen.epilogue import parts_of
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.steps import Reduction, Step
from kopt_starters.codegen.writer import Load, Writer, as_loaded, offset, scalar_names
from kopt_starters.graph import Value

FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of an element of the types that are read several at a time."""
_INT32 = 2**31 - 2**20
"""Below this many elements, tiles may begin and end beyond the last one in 32 bits."""


@dataclass(frozen=True)
class Tiles:
    """Writes the kernels of one step; ``name`` keeps them apart from those of other steps."""

    step: Step
    name: str = ""

    @property
    def arguments(self) -> dict[str, Value]:
        """Pointer parameters with the tensors to pass."""
        return {load.pointer: load.argument for load in self.step.loads}

    @property
    def scalars(self) -> dict[str, str]:
        """Scalar parameters with the entry's arguments to pass."""
        return {name: name.removesuffix("_value") for name in sorted(self.step.scalars)}

    @property
    def buffers(self) -> dict[str, str]:
        """Pointer parameters of partial states, with their dtypes, level by level."""
        return self._buffers(self.step.reductions)

    @staticmethod
    def _buffers(reductions: Iterable[Reduction]) -> dict[str, str]:
        return {
            f"{state}_parts": dtype
            for each in sorted(reductions, key=lambda r: r.level)
            for state, dtype in zip(each.states, each.statistic.types, strict=True)
        }

    def whole(self) -> str:
        """Return a kernel that keeps whole rows in registers: each element is read once."""
        writer = self._writer("v")
        lines = [*self._rows(), *self._tile("0"), "turn = 1.0"]
        done = 0
        for level in range(self.step.levels):
            reductions = self.step.at_level(level)
            terms = [writer.value(each.node.tensors[0], each.inner) for each in reductions]
            lines += writer.lines[done:]
            done = len(writer.lines)
            for each, term in zip(reductions, terms, strict=True):
                lines += self._whole(each, term, "(REDUCED * 1.0)")
        term = writer.value(self.step.result, self.step.places)
        lines += [*writer.lines[done:], *self._store(term)]
        return self._kernel("whole", [], lines)

    def plain(self) -> str:
        """Return a kernel for a step without reductions: a tile of the result for each program."""
        writer = self._writer("v")
        term = writer.value(self.step.result, self.step.places)
        lines = [
            "blocks: tl.constexpr = (REDUCED + BLOCK - 1) // BLOCK",
            f"k = ((tl.program_id(0) // blocks){self._wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "k_in = k < KEPT",
            "stop = REDUCED",
            *self._tile("tl.program_id(0) % blocks * BLOCK"),
            *writer.lines,
            *self._store(term),
        ]
        return self._kernel("plain", [], lines)

    def looped(self) -> str:
        """Return a kernel that sweeps over its rows once for each level, then to write."""
        lines = [*self._rows(), "begin, stop = 0, REDUCED"]
        for level in range(self.step.levels):
            lines += self._sweep(level, "REDUCED", "(REDUCED * 1.0)")
        lines += self._finish("REDUCED")
        return self._kernel("looped", [], lines)

    def part(self, level: int) -> str:
        """Return a kernel whose programs leave states of one level for a PIECE of their rows."""
        lines = [*self._rows(), *self._piece(), *self._combined(range(level))]
        lines += self._sweep(level, "PIECE", "(tl.maximum(stop - begin, 1) * 1.0)")
        reductions = self.step.at_level(level)
        at = "k * PARTS + tl.program_id(1)"
        for state in self._states(reductions):
            lines.append(f"tl.store({state}_parts + {at}, {state}, mask=k_in)")
        buffers = self._buffers(r for r in self.step.reductions if r.level <= level)
        return self._kernel(f"part{level}", [*buffers], lines)

    def finish(self) -> str:
        """Return the kernel that merges all states and writes the result."""
        lines = [*self._rows(), *self._piece(), *self._combined(range(self.step.levels))]
        lines += self._finish("PIECE")
        return self._kernel("finish", [*self.buffers], lines)

    def _kernel(self, kind: str, extra: Sequence[str], lines: Sequence[str]) -> str:
        sizes = ["KEPT", "REDUCED", "ROWS", "BLOCK"]
        if kind.startswith(("part", "finish")):
            sizes += ["PARTS", "PIECE"]
        if kind in ("waiting", "sweeping"):
            sizes += ["PIECES", "PARTS", "PIECE"]
        constants = [f"{size}: tl.constexpr" for size in sizes]
        parameters = ", ".join([*self.arguments, "out", *self.scalars, *extra, *constants])
        return f"\n@triton.jit\ndef _{kind}{self.name}({parameters}):\n{indented(lines)}\n"

    @property
    def _wide(self) -> str:
        sizes = [self.step.result.elements, *(load.argument.elements for load in self.step.loads)]
        return ".to(tl.int64)" if max(sizes) >= _INT32 else ""

    @property
    def _wide_reduced(self) -> str:
        """A cast where what is reduced spans more than 32 bits can count; kept positions may, too."""
        accesses = [self.step.steps, *(load.strides for load in self.step.loads)]
        spans = [
            sum(axis.extent * strides.get(axis, 0) for axis in self.step.reduced)
            for strides in accesses
        ]
        return ".to(tl.int64)" if max(self.step.cols, *spans) >= _INT32 else ""

    def _rows(self) -> list[str]:
        return [
            f"k = (tl.program_id(0){self._wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "k_in = k < KEPT",
        ]

    def _tile(self, start: str) -> list[str]:
        begin = "" if start == "0" else f"{start} + "
        return [
            f"tile = {start}",
            f"r = {begin}tl.arange(0, BLOCK)[None, :]",
            f"r_in = r < {'REDUCED' if start == '0' else 'stop'}",
            *(["r = r.to(tl.int64)"] if self._wide_reduced else []),
            "inside = k_in & r_in",
        ]

    @property
    def _long(self) -> str:
        """A cast where a row has more elements than 32 bits can count."""
        return ".to(tl.int64)" if self.step.cols >= _INT32 else ""

    def _piece(self) -> list[str]:
        return [
            f"begin = tl.program_id(1){self._long} * PIECE",
            "stop = tl.maximum(tl.minimum(begin + PIECE, REDUCED), begin)",
        ]

    @staticmethod
    def _states(reductions: Iterable[Reduction]) -> list[str]:
        return [state for each in reductions for state in each.states]

    def _sweep(self, level: int, span: str, total: str) -> list[str]:
        """Return lines that leave the merged states of one level, from ``begin`` to ``stop``.

        That is ``span`` elements at most, and ``total`` exactly.
        """
        reductions = self.step.at_level(level)
        writer = self._writer(f"v{level}_")
        terms = [writer.value(each.node.tensors[0], each.inner) for each in reductions]
        inner = [*self._tile("begin + step"), *writer.lines]
        if any(each.statistic.kind == "moments" for each in reductions):
            inner.append("turn = step // BLOCK + 1.0")
        lines = []
        fold = self._fold
        for each, term in zip(reductions, terms, strict=True):
            if each.statistic.powers and fold:
                lines.append(f"FOLD: tl.constexpr = {fold} if BLOCK > {fold} else BLOCK")
                lines += each.statistic.begin(each.states, "[ROWS, BLOCK // FOLD]")
                inner += each.statistic.folded(each.states, term, "FOLD")
                continue
            lines += each.statistic.begin(each.states, "[ROWS, BLOCK]")
            inner += each.statistic.update(each.states, term, "r", completed=not self.step.full)
        lines += [f"for step in range(0, {span}, BLOCK):", *(f"    {line}" for line in inner)]
        lanes = "stop - begin - tl.arange(0, BLOCK)[None, :] + BLOCK - 1"
        lines.append(f"seen = (({lanes}) // BLOCK).to(tl.float32)")
        for each in reductions:
            if not self.step.full:
                first = "(begin + tl.arange(0, BLOCK)[None, :])"
                lines += each.statistic.complete(each.states, first, "seen")
            lines += self._merged(each, "seen", total)
        return lines

    def _combined(self, levels: Iterable[int]) -> list[str]:
        """Return lines that load and merge what the parts of lower levels left."""
        # Lanes as in the tiles, where there are several rows: then what is merged has their layout.
        lines = [
            "LANES: tl.constexpr = PARTS if ROWS == 1 or PARTS > BLOCK else BLOCK",
            f"part = tl.arange(0, LANES)[None, :]{self._long}",
            "taken = tl.minimum(tl.maximum(REDUCED - part * PIECE, 0), PIECE).to(tl.float32)",
        ]
        for each in (r for level in levels for r in self.step.at_level(level)):
            lines += [
                f"{state} = tl.load({state}_parts + k * PARTS + part, mask=k_in & (part < PARTS), "
                f"other={value})"
                for state, value in zip(each.states, each.statistic.initial, strict=True)
            ]
            lines += self._merged(each, "taken", "(REDUCED * 1.0)")
        return lines

    @property
    def _fold(self) -> int:
        """Elements side by side in a row that one thread has; 0 where columns are reduced."""
        widths = [FLOAT_BYTES.get(load.argument.dtype, 8) for load in self.step.loads]
        return 16 // max(widths) if self.step.rowwise else 0

    def _whole(self, reduction: Reduction, term: Term, total: str) -> list[str]:
        """Return lines that leave the merged states of a tile that is all of its rows' or piece's."""
        statistic, states = reduction.statistic, reduction.states
        if statistic.powers:
            return [*statistic.whole(states, term), *self._scalars_of_one_row(states)]
        return [
            *statistic.begin(states, "[ROWS, BLOCK]"),
            *statistic.update(states, term, "r"),
            *self._merged(reduction, "r_in.to(tl.float32)", total),
        ]

    def _merged(self, reduction: Reduction, count: str, total: str) -> list[str]:
        """Return lines that merge states; those of a single row become scalars, of no layout."""
        states = reduction.states
        return [*reduction.statistic.merge(states, count, total), *self._scalars_of_one_row(states)]

    @staticmethod
    def _scalars_of_one_row(states: Iterable[str]) -> list[str]:
        return ["if ROWS == 1:", *(f"    {state} = tl.sum({state})" for state in states)]

    def _finish(self, span: str) -> list[str]:
        writer = self._writer("w", last=self.step.full)
        term = writer.value(self.step.result, self.step.places)
        lines = [*writer.lines, *self._store(term)]
        if not self.step.full:
            return lines
        # Backwards: what was read last is still in the cache.
        back = f"back = begin + ({span} - 1) // BLOCK * BLOCK - step"
        inner = [back, *self._tile("back"), *lines]
        return [f"for step in range(0, {span}, BLOCK):", *(f"    {line}" for line in inner)]

    def _store(self, term: Term) -> list[str]:
        to = self._offset(self.step.steps)
        mask = "inside" if self.step.full else "k_in"
        # A sum with nothing in the mask's shape keeps the address a tile where nothing moves it.
        at = f"{to} + {'k * 0' if not self.step.full else 'k * 0 + r * 0'}"
        once = ', eviction_policy="evict_first"' if self.step.full and self.step.reductions else ""
        value = f"({term.text}).to(out.dtype.element_ty)"
        return [f"tl.store(out + ({at}), {value}, mask={mask}{once})"]

    def _coarse(self, moving: Mapping[Axis, int], where: Mapping[Axis, str]) -> tuple[int, str]:
        """Return how many reduced elements a read is the same for, and where it is read for them.

        1 where it moves with each; tiles begin at multiples of BLOCK, at ``tile``.
        """
        accesses = [self.step.steps, *(load.strides for load in self.step.loads)]
        groups = merged(self.step.reduced, accesses)
        extents = [prod(axis.extent for axis in group) for group in groups]
        used = [n for n, group in enumerate(groups) if group[-1] in moving]
        unit = prod(extents[max(used) + 1 :]) if used else 1
        lasts = [Axis(extent) for extent in extents]
        texts = parts_of(lasts, f"tl.minimum(tile, {prod(extents) - 1})")
        coarse = {
            g[-1]: texts[last] for g, last in zip(groups, lasts, strict=True) if last in texts
        }
        return unit, offset(moving, {**where, **coarse}) if unit > 1 else ""

    def _whole_access(self, at: str) -> tuple[str, str]:
        """Return where, and with which mask, an argument is read that has rows and columns."""
        return at, "inside"

    def _offset(self, strides: Strides) -> str:
        """Return where an access is, with as few divisions as it needs by itself."""
        where = self._coordinates([strides])
        return offset({axis: step for axis, step in strides.items() if axis in where}, where)

    def _coordinates(self, accesses: Sequence[Strides] = ()) -> dict[Axis, str]:
        """Return coordinates of groups of axes, by their last, that suit accesses (default: all)."""
        accesses = accesses or [self.step.steps, *(load.strides for load in self.step.loads)]
        found: dict[Axis, str] = {}
        for axes, name in ((self.step.kept, "k"), (self.step.reduced, "r")):
            groups = merged(axes, accesses)
            lasts = [Axis(prod(axis.extent for axis in group)) for group in groups]
            texts = parts_of(lasts, name) if len(groups) > 1 else dict.fromkeys(lasts, name)
            found |= {group[-1]: texts[last] for group, last in zip(groups, lasts, strict=True)}
        return found

    def _writer(self, prefix: str, *, last: bool = False) -> Writer:
        """Return a writer of this step's values; what is read for the ``last`` time may leave L2."""
        where = self._coordinates()
        kept, reduced = set(self.step.kept), set(self.step.reduced)

        def load(wanted: Load) -> Term:
            moving = {axis: s for axis, s in wanted.strides.items() if s and axis in where}
            by_k, by_r = bool(kept & set(moving)), bool(reduced & set(moving))
            at, mask = self._offset(wanted.strides), "k_in" if by_k else "r_in"
            once = ""
            if by_k and by_r:
                once = ', eviction_policy="evict_first"' if last else ""
                at, mask = self._whole_access(at)
            text = f"tl.load({wanted.pointer} + {at}, mask={mask}, other=0{once})"
            unit, coarse = self._coarse(moving, where)
            if unit > 1:  # the same for all of a tile that does not go beyond a unit
                text = (
                    f"(tl.load({wanted.pointer} + {coarse} + k * 0, mask=k_in, other=0)"
                    f" if {unit} % BLOCK == 0 else {text})"
                )
            if not moving:
                text = f"tl.load({wanted.pointer})"
            return writer.assign(*as_loaded(text, wanted.argument.dtype))

        def bound(value: Value, places: Places) -> Term | None:
            known = self.step.reduction_of(value)
            if known is None:
                return None
            reduction, number = known
            kind, state = reduction.statistic.outputs[number], reduction.states[number]
            return Term(f"({state} != 0)" if kind == "bool" else state, kind)

        writer = Writer(self.step.graph, load, bound, scalar_names(self.step.graph), prefix)
        return writer
