"""Kernels of a step in which the programs of a row wait for one another: long rows are read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.tiles import FLOAT_BYTES, Tiles


@dataclass(frozen=True)
class WaitingTiles(Tiles):
    """A tile is a row's piece of BLOCK elements, in registers; PIECES programs have a row.

    A program leaves the state of its piece in a buffer, counts itself in, and waits until all of its
    row have: what it then merges is the row's. Programs begin in the order of their numbers, so a
    row's are all at work once those before them are done, where as many fit on the device.
    """

    def waiting(self) -> str:
        """Return a kernel that keeps its piece in registers: each element is read once."""
        writer = self._writer("v", last=True)
        lines = [*self._opening(), "stop = REDUCED", *self._tile("begin"), "turn = 1.0"]
        done = 0
        for level in range(self.step.levels):
            reductions = self.step.at_level(level)
            terms = [writer.value(each.node.tensors[0], each.inner) for each in reductions]
            lines += writer.lines[done:]
            done = len(writer.lines)
            for each, term in zip(reductions, terms, strict=True):
                lines += self._whole(each, term, f"({self._count('begin', 1)} * 1.0)")
            lines += self._shared(level)
        term = writer.value(self.step.result, self.step.places)
        lines += [*writer.lines[done:], *self._store(term)]
        return self._kernel("waiting", [*self.buffers, "arrived"], lines)

    def sweeping(self) -> str:
        """Return a kernel that reads its piece once more when all states are there, from L2."""
        lines = [
            *self._opening(),
            "stop = tl.maximum(tl.minimum(begin + PIECE, REDUCED), begin)",
        ]
        for level in range(self.step.levels):
            lines += self._sweep(level, "PIECE", f"({self._count('begin', 1)} * 1.0)")
            lines += self._shared(level)
        lines += self._finish("PIECE")
        return self._kernel("sweeping", [*self.buffers, "arrived"], lines)

    def _opening(self) -> list[str]:
        lines = [
            "row, piece = tl.program_id(0) // PIECES, tl.program_id(0) % PIECES",
            f"k = (row{self._wide} + tl.arange(0, ROWS))[:, None]",
            "k_in = k < KEPT",
            "begin = piece * PIECE",
        ]
        if self.group:
            lines += [
                f"first = k * REDUCED // {self.group} * {self.group}",
                "lead = (k * REDUCED - first).to(tl.int32)",
            ]
        return [
            *lines,
            f"slot = row{self._wide} * PARTS",
            "part = tl.arange(0, PARTS)[None, :]",
            f"taken = {self._count('part * PIECE', 0)}.to(tl.float32)",
        ]

    @property
    def group(self) -> int:
        """Elements of 16 bytes, where rows begin in between such groups; else 0.

        Tiles then begin where a group does, before their row, and may read the end of another row.
        A sweep that counts what each lane has seen, for moments, cannot have that.
        """
        step, where = self.step, self._coordinates()
        if any(each.statistic.kind == "moments" for each in step.reductions):
            return 0
        names = [step.result, *(load.argument for load in step.loads)]
        group = 16 // min(FLOAT_BYTES.get(value.dtype, 1) for value in names)
        odd = step.cols % group and not step.rows * step.cols % group
        rows = {axis: step.cols if name == "k" else 1 for axis, name in where.items()}
        if not odd or sorted(where.values()) != ["k", "r"]:
            return 0
        for strides in [step.steps, *(load.strides for load in step.loads)]:
            moving = {axis: strides[axis] for axis in where if strides.get(axis)}
            if len(moving) == 2 and moving != rows:
                return 0
        return group if {axis: step.steps.get(axis) for axis in where} == rows else 0

    def _tile(self, start: str) -> list[str]:
        if not self.group:
            return super()._tile(start)
        return [
            f"lane = {start} + tl.arange(0, BLOCK)[None, :]",
            "at = first + lane",
            "near = at < KEPT * REDUCED",
            "r = lane - lead",
            "r_in = (r >= 0) & (r < REDUCED)",
            "inside = k_in & r_in",
            f"edge = lane // {self.group} * {self.group} - lead",
            f"full = k_in & (edge >= 0) & (edge + {self.group} <= REDUCED)",
        ]

    def _count(self, begin: str, least: int) -> str:
        """Return how many elements of the row a piece has, or ``least``."""
        if not self.group:
            return f"tl.maximum(tl.minimum(REDUCED - {begin}, PIECE), {least})"
        start = f"{begin} - lead"
        piece = f"tl.minimum({start} + PIECE, REDUCED) - tl.maximum({start}, 0)"
        return f"tl.maximum({piece}, {least})"

    def _whole_access(self, at: str) -> tuple[str, str]:
        return ("at", "near") if self.group else (at, "inside")

    def _store(self, term: Term) -> list[str]:
        if not self.group:
            return super()._store(term)
        return [
            f"tl.store(out + at, ({term.text}).to(out.dtype.element_ty), mask={mask},"
            ' eviction_policy="evict_first")'
            for mask in ("full", "inside & (full == 0)")
        ]

    def _shared(self, level: int) -> list[str]:
        """Return lines that leave a level's states for the others, and merge theirs."""
        reductions = self.step.at_level(level)
        lines = [
            f"tl.store({state}_parts + (slot + piece), {state})"
            for state in self._states(reductions)
        ]
        lines.append(f"_wait_for_all(arrived + ({level} * KEPT + row), PIECES)")
        for each in reductions:
            lines += [
                f"{state} = tl.load({state}_parts + (slot + part), mask=part < PIECES,"
                f' other={value}, cache_modifier=".cg")'
                for state, value in zip(each.states, each.statistic.initial, strict=True)
            ]
            lines += self._merged(each, "taken", "(REDUCED * 1.0)")
        return lines

    def launch(self, kind: str, given: str, knobs: Mapping[str, str]) -> list[str]:
        """Return lines of the entry, where ``_out`` is to be filled and ``given`` passed first."""
        step, reach = self.step, self.step.cols + max(0, self.group - 1)
        block = "_piece" if kind == "waiting" else knobs["BLOCK"]
        piece = knobs["PIECE"]
        # Triton's interpreter runs one program after the other: each then has a whole row.
        whole = 1 << max(0, reach - 1).bit_length()
        return [
            f"_piece = {piece} if _device.type != 'cpu' else max({whole}, {piece})",
            f"_pieces = triton.cdiv({reach}, _piece)",
            "if _device.type == 'cuda':",
            "    _units = torch.cuda.get_device_properties(_device).multi_processor_count",
            "    if _pieces > _units:",
            '        raise ValueError("for devices that run all programs of a row at once only")',
            # A state for each thread at least: fewer would be read by every thread one by one.
            f"_parts = max(triton.next_power_of_2(_pieces), 32 * {knobs['num_warps']})",
            *(
                f"{buffer} = torch.empty({step.rows_text} * _parts, dtype=torch.{dtype}, device=_device)"
                for buffer, dtype in self.buffers.items()
            ),
            f"_arrived = torch.zeros({step.rows_text} * {step.levels}, dtype=torch.int32, device=_device)",
            f"_{kind}{self.name}[({step.rows_text} * _pieces,)](",
            f"    {given}, _arrived, KEPT={step.rows_text}, REDUCED={step.cols}, ROWS=1,",
            f"    BLOCK={block}, PIECES=_pieces, PARTS=_parts, PIECE=_piece,",
            f"    num_warps={knobs['num_warps']}, maxnreg={knobs['maxnreg']})",
        ]
