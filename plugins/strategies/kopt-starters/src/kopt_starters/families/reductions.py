"""Reductions with what leads to them and what follows them: sums, extremes, norms, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.folding import FoldedTiles, fold_of
from kopt_starters.codegen.launcher import IMPORTS, checks, header, indented, opening
from kopt_starters.codegen.leading import EXTENT, Leading
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.short_functions import sufficient
from kopt_starters.codegen.steps import Step, steps_of
from kopt_starters.codegen.tiles import Tiles
from kopt_starters.codegen.waiting import WaitingTiles
from kopt_starters.codegen.writer import identifier
from kopt_starters.families.reduction_knobs import (
    FOLDED_ROWS,
    LONG,
    REGISTER_TILE,
    SHORT,
    folded_knobs,
    kept_at_once,
    looped_knobs,
    split_knobs,
    sweeping_knobs,
    waiting_knobs,
    whole_knobs,
)
from kopt_starters.gpu import power_of_two

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device, Target
    from kopt_starters.graph import Graph


class Reductions:
    """One reduction, or several of one row or one after the other, and element-wise operators."""

    name = "reductions"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return a kernel for each structure that suits; none where anything is not understood."""
        result = result_of(graph)
        if target.language != "triton" or result is None:
            return []
        try:
            parts = in_parts(graph)
            steps = steps_of(parts, result)
            suiting = _suiting(max(steps, key=_work), target.device)
            short = sufficient(graph)
            return [_candidate(parts, steps, s, target.device, short) for s in suiting]
        except NotCoveredError:
            return []


def _work(step: Step) -> int:
    return step.rows * step.cols


@dataclass(frozen=True)
class _Structure:
    name: str
    idea: str
    knobs: Callable[[Step, Device], dict[str, Knob]]
    kernels: Callable[[Tiles], list[str]]
    launch: Callable[[Tiles, Mapping[str, str]], list[str]]
    """Lines of the entry, where ``_out`` is what they have to fill; knobs by name as expressions."""


def _suiting(step: Step, device: Device) -> list[_Structure]:
    """Return the structures for the step that most of the time goes into, the best first."""
    tiles = -(-step.rows // kept_at_once(step))
    fits = power_of_two(step.cols) * kept_at_once(step) <= REGISTER_TILE
    few = tiles < 2 * device.units and step.cols >= 4096
    waits = step.full and step.rowwise and step.rows > 1 and not fits
    found = []
    if waits and step.cols <= SHORT:
        found.append(_WAITING)
    if waits and not few:
        found.append(_SWEEPING)
        # What is kept in registers needs no second power where a maximum and powers are reduced.
        if SHORT < step.cols <= LONG and any(each.statistic.powers for each in step.reductions):
            found.append(_WAITING)
    if few:
        found.append(_SPLIT)
    if not few and not step.rowwise and _folds(step, device):
        found.append(_FOLDED)
    if fits:
        found.append(_WHOLE)
    if not few:  # few programs, each with a long row, leave the device idle
        found.append(_LOOPED)
    if waits and few:
        found.append(_SWEEPING)
    return found


def _folds(step: Step, device: Device) -> bool:
    fold = fold_of(step)
    return (
        fold is not None
        and step.cols >= 64 * fold.rows
        and step.rows * fold.rows >= 2 * device.units * FOLDED_ROWS
    )


def _launch_one(kind: str) -> Callable[[Tiles, Mapping[str, str]], list[str]]:
    def launch(tiles: Tiles, knobs: Mapping[str, str]) -> list[str]:
        step = tiles.step
        block = knobs.get("BLOCK", str(power_of_two(step.cols)))
        return [
            f"_{kind}{tiles.name}[(triton.cdiv({step.rows_text}, {knobs['ROWS']}),)](",
            f"    {_given(tiles)}, KEPT={step.rows_text}, REDUCED={step.cols},",
            f"    ROWS={knobs['ROWS']}, BLOCK={block}, num_warps={knobs['num_warps']})",
        ]

    return launch


def _launch_split(tiles: Tiles, knobs: Mapping[str, str]) -> list[str]:
    step, name = tiles.step, tiles.name
    lines = [
        f"_tiles = triton.cdiv({step.rows_text}, {knobs['ROWS']})",
        f"_piece = triton.cdiv(triton.cdiv({step.cols}, {knobs['PARTS']}), {knobs['BLOCK']}) "
        f"* {knobs['BLOCK']}",
        f"_sizes = {{'KEPT': {step.rows_text}, 'REDUCED': {step.cols}, 'ROWS': {knobs['ROWS']}, "
        f"'BLOCK': {knobs['BLOCK']}, 'PARTS': {knobs['PARTS']}, 'PIECE': _piece, "
        f"'num_warps': {knobs['num_warps']}}}",
        f"_grid = (_tiles, {knobs['PARTS']})",
    ]
    lines += [
        f"{buffer} = torch.empty({step.rows_text} * {knobs['PARTS']}, dtype=torch.{dtype}, device=_device)"
        for buffer, dtype in tiles.buffers.items()
    ]
    taken: list[str] = []
    for level in range(step.levels):
        taken += [f"{s}_parts" for each in step.at_level(level) for s in each.states]
        lines.append(f"_part{level}{name}[_grid]({_given(tiles, taken)}, **_sizes)")
    grid = "_grid" if step.full else "(_tiles, 1)"
    return [*lines, f"_finish{name}[{grid}]({_given(tiles, taken)}, **_sizes)"]


def _given(tiles: Tiles, extra: Iterable[str] = ()) -> str:
    """Return what every kernel of a step is given first."""
    tensors = [identifier(value.name) for value in tiles.arguments.values()]
    scalars = [f"float({name})" for name in tiles.scalars.values()]
    return ", ".join([*tensors, "_out", *scalars, *extra])


_WHOLE = _Structure(
    "whole", "one pass, rows in registers", whole_knobs, lambda tiles: [tiles.whole()],
    _launch_one("whole"),
)  # fmt: skip
_LOOPED = _Structure(
    "looped", "sweeps over tiles", looped_knobs, lambda tiles: [tiles.looped()],
    _launch_one("looped"),
)  # fmt: skip
_SPLIT = _Structure(
    "split", "several programs a row, partial states in a buffer", split_knobs,
    lambda tiles: [*(tiles.part(level) for level in range(tiles.step.levels)), tiles.finish()],
    _launch_split,
)  # fmt: skip
_FOLDED = _Structure(
    "folded", "odd rows joined to ones of whole vectors, merged in the end", folded_knobs,
    lambda tiles: [FoldedTiles(tiles.step, tiles.name).folded(),
                   FoldedTiles(tiles.step, tiles.name).merging()],
    lambda tiles, knobs: FoldedTiles(tiles.step, tiles.name).launch(
        _given(tiles), ", ".join(tiles.buffers), knobs
    ),
)  # fmt: skip
_WAITING = _Structure(
    "waiting", "one read, programs of a row wait for one another", waiting_knobs,
    lambda tiles: [WaitingTiles(tiles.step, tiles.name).waiting()],
    lambda tiles, knobs: WaitingTiles(tiles.step, tiles.name).launch(
        "waiting", _given(tiles, tiles.buffers), knobs
    ),
)  # fmt: skip
_SWEEPING = _Structure(
    "sweeping", "second read from L2, programs of a row wait for one another", sweeping_knobs,
    lambda tiles: [WaitingTiles(tiles.step, tiles.name).sweeping()],
    lambda tiles, knobs: WaitingTiles(tiles.step, tiles.name).launch(
        "sweeping", _given(tiles, tiles.buffers), knobs
    ),
)  # fmt: skip


def _candidate(
    graph: Graph,
    steps: Sequence[Step],
    structure: _Structure,
    device: Device,
    functions: Mapping[str, str],
) -> Candidate:
    """Return a kernel file in which the step with most work has a structure with knobs.

    The others have what suits them best, at its defaults.
    """
    main = max(steps, key=_work)
    knobs = structure.knobs(main, device)
    kernels, lines = [], []
    for number, step in enumerate(steps):
        tiles = Tiles(step, str(number) if len(steps) > 1 else "")
        chosen, values = structure, {name: name for name in knobs}
        if step is not main:
            chosen = _suiting(step, device)[0]
            fixed = chosen.knobs(step, device)
            values = {name: str(knob.default) for name, knob in fixed.items()}
        kernels += chosen.kernels(tiles)
        last = number == len(steps) - 1
        lines.append(f"_out = {_empty(step, last=last)}")
        lines += chosen.launch(tiles, values)
        if not last:
            lines.append(f"{identifier(step.result.name)} = _out")
    helpers = helpers_for("\n".join(kernels), functions)
    text = _file(graph, steps, knobs, [helpers, *kernels], lines)
    idea = f"reductions: {structure.idea}"
    return parse_kernel(text, "triton", strategy="starters", idea=idea)


def _empty(step: Step, *, last: bool) -> str:
    """Return memory for a step's result as an expression of the entry."""
    dtype = step.result.dtype if last or "float" not in step.result.dtype else "float32"
    shape = Leading.shape(step.leading, step.result.shape)
    return f"torch.empty({shape}, dtype=torch.{dtype}, device=_device)"


def _file(
    graph: Graph,
    steps: Sequence[Step],
    knobs: Mapping[str, Knob],
    kernels: Sequence[str],
    lines: Sequence[str],
) -> str:
    scalars = {name for step in steps for name in Tiles(step).scalars.values()}
    names = {a.name for a in graph.arguments}
    read = dict.fromkeys(
        identifier(load.argument.name)
        for step in steps for load in step.loads if load.argument.name in names
    )  # fmt: skip
    first, end = next(iter(read)), steps[-1]
    entry = [
        *checks(graph, scalars, leading=end.leading),
        f"_device = {first}.device",
        *([f"if not {EXTENT}:", f"    return {_empty(end, last=True)}"] if end.leading else []),
        *(f"{name} = {name}.contiguous()" for name in read),
        *lines,
        "return _out",
    ]
    return "\n".join(
        [
            header("reduction", knobs),
            '"""Reductions with what leads to them and what follows them."""\n',
            IMPORTS,
            *kernels,
            "",
            opening(graph, "reduction", knobs),
            indented(entry),
            "",
        ]
    )
