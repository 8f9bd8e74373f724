"""Reductions with what leads to them and what follows them: sums, extremes, norms, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.device_functions import helpers_for
from kopt_starters.codegen.launcher import IMPORTS, checks, header, indented, opening
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.steps import Step, steps_of
from kopt_starters.codegen.tiles import Tiles
from kopt_starters.codegen.writer import identifier
from kopt_starters.gpu import power_of_two

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Device, Target
    from kopt_starters.graph import Graph, Value

_REGISTER_TILE = 32768
"""Elements of a tile that still fit into the registers of one program."""
_MOST_PARTS = 2048


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
            return [_candidate(parts, steps, each, target.device) for each in suiting]
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
    tiles = -(-step.rows // _kept_at_once(step))
    fits = power_of_two(step.cols) * _kept_at_once(step) <= _REGISTER_TILE
    few = tiles < 2 * device.units and step.cols >= 4096
    found = []
    if few or (not fits and step.full):
        found.append(_SPLIT)
    if fits:
        found.append(_WHOLE)
    return [*found, _LOOPED]


def _kept_at_once(step: Step) -> int:
    """Return how many kept positions a tile needs at least, so that it reads whole sectors."""
    return 1 if step.rowwise else min(16, power_of_two(step.rows))


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << n for n in range(low.bit_length() - 1, high.bit_length()) if 1 << n <= high)


def _choice(wanted: int, choices: Sequence[int]) -> Knob:
    """Return a knob with at most four choices around the one nearest to ``wanted``."""
    at = min(range(len(choices)), key=lambda n: abs(choices[n].bit_length() - wanted.bit_length()))
    near = tuple(choices[max(0, at - 2) : at + 2])
    return Knob(default=choices[at], choices=near)


def _warps(elements: int, per_thread: int) -> Knob:
    return _choice(max(1, elements // (32 * per_thread)), _powers(1, 32))


def _whole_knobs(step: Step, device: Device) -> dict[str, Knob]:
    block, least = power_of_two(step.cols), _kept_at_once(step)
    most = max(least, min(512, 8192 // block, power_of_two(step.rows)))
    wanted = max(least, 2048 // block) if step.rowwise else max(32, 2048 // block)
    rows = _choice(wanted, _powers(least, most))
    return {"ROWS": rows, "num_warps": _warps(int(rows.default) * block, 16)}


def _looped_knobs(step: Step, device: Device) -> dict[str, Knob]:
    if step.rowwise:
        block = _choice(min(4096, power_of_two(step.cols)), _powers(16, 8192))
        rows = _choice(max(1, 1024 // int(block.default)), _powers(1, 64))
        return {"ROWS": rows, "BLOCK": block,
                "num_warps": _warps(int(block.default) * int(rows.default), 16)}  # fmt: skip
    width = min(128, power_of_two(step.rows))
    while width > 16 and step.rows // width < 2 * device.units:
        width //= 2
    rows = _choice(width, _powers(min(16, width), 256))
    block = _choice(min(power_of_two(step.cols), 2048 // int(rows.default)), _powers(4, 256))
    return {"ROWS": rows, "BLOCK": block, "num_warps": _choice(4, (2, 4, 8))}


def _split_knobs(step: Step, device: Device) -> dict[str, Knob]:
    looped = _looped_knobs(step, device)
    tiles = -(-step.rows // int(looped["ROWS"].default))
    blocks = -(-step.cols // int(looped["BLOCK"].default))
    wanted = min(max(2, 8 * device.units // tiles), max(2, blocks // 4), _MOST_PARTS)
    group = _group(step, device, int(looped["ROWS"].default), tiles)
    if step.full and tiles > group:
        wanted = min(max(2, 4 * device.units // group), max(2, blocks))
    parts = _choice(wanted, _powers(2, min(_MOST_PARTS, power_of_two(blocks) * 2)))
    knobs = {**looped, "PARTS": parts}
    if step.full and tiles > 1:
        choices = sorted({max(1, group // 2), group, min(tiles, group * 2), tiles})
        knobs["GROUP"] = Knob(default=group, choices=tuple(choices))
    return knobs


def _group(step: Step, device: Device, rows: int, tiles: int) -> int:
    """Return how many tiles of whole rows fill half the cache: then what is read again hits it."""
    large = [load for load in step.loads if load.argument.elements >= step.rows * step.cols]
    elements = max(1, rows * step.cols * max(1, len(large)))
    return max(1, min(tiles, (device.cache_bytes // 2) // (4 * elements)))


def _launch_one(kind: str) -> Callable[[Tiles, Mapping[str, str]], list[str]]:
    def launch(tiles: Tiles, knobs: Mapping[str, str]) -> list[str]:
        step = tiles.step
        block = knobs.get("BLOCK", str(power_of_two(step.cols)))
        return [
            f"_{kind}{tiles.name}[(triton.cdiv({step.rows}, {knobs['ROWS']}),)](",
            f"    {_given(tiles)}, KEPT={step.rows}, REDUCED={step.cols},",
            f"    ROWS={knobs['ROWS']}, BLOCK={block}, num_warps={knobs['num_warps']})",
        ]

    return launch


def _launch_split(tiles: Tiles, knobs: Mapping[str, str]) -> list[str]:
    step, name = tiles.step, tiles.name
    group = knobs.get("GROUP", "_tiles")
    lines = [
        f"_tiles = triton.cdiv({step.rows}, {knobs['ROWS']})",
        f"_piece = triton.cdiv(triton.cdiv({step.cols}, {knobs['PARTS']}), {knobs['BLOCK']}) "
        f"* {knobs['BLOCK']}",
        f"_sizes = {{'KEPT': {step.rows}, 'REDUCED': {step.cols}, 'ROWS': {knobs['ROWS']}, "
        f"'BLOCK': {knobs['BLOCK']}, 'PARTS': {knobs['PARTS']}, 'PIECE': _piece, "
        f"'num_warps': {knobs['num_warps']}}}",
    ]
    lines += [
        f"{buffer} = torch.empty({step.rows} * {knobs['PARTS']}, dtype=torch.{dtype}, device=_device)"
        for buffer, dtype in tiles.buffers.items()
    ]
    inner = [f"_grid = (min({group}, _tiles - _first), {knobs['PARTS']})"]
    taken: list[str] = []
    for level in range(step.levels):
        taken += [f"{s}_parts" for each in step.at_level(level) for s in each.states]
        inner.append(f"_part{level}{name}[_grid]({_given(tiles, taken)}, _first, **_sizes)")
    grid = "_grid" if step.full else "(_grid[0], 1)"
    inner.append(f"_finish{name}[{grid}]({_given(tiles, taken)}, _first, **_sizes)")
    lines.append(f"for _first in range(0, _tiles, {group}):")
    return [*lines, *(f"    {line}" for line in inner)]


def _given(tiles: Tiles, extra: Sequence[str] = ()) -> str:
    """Return what every kernel of a step is given first."""
    tensors = [identifier(value.name) for value in tiles.arguments.values()]
    scalars = [f"float({name})" for name in tiles.scalars.values()]
    return ", ".join([*tensors, "_out", *scalars, *extra])


_WHOLE = _Structure(
    "whole", "one pass, rows in registers", _whole_knobs, lambda tiles: [tiles.whole()],
    _launch_one("whole"),
)  # fmt: skip
_LOOPED = _Structure(
    "looped", "sweeps over tiles", _looped_knobs, lambda tiles: [tiles.looped()],
    _launch_one("looped"),
)  # fmt: skip
_SPLIT = _Structure(
    "split", "several programs a row, partial states in a buffer", _split_knobs,
    lambda tiles: [*(tiles.part(level) for level in range(tiles.step.levels)), tiles.finish()],
    _launch_split,
)  # fmt: skip


def _candidate(
    graph: Graph, steps: Sequence[Step], structure: _Structure, device: Device
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
        lines += _output(step.result, last=last)
        lines += chosen.launch(tiles, values)
        if not last:
            lines.append(f"{identifier(step.result.name)} = _out")
    text = _file(graph, steps, knobs, kernels, lines)
    idea = f"reductions: {structure.idea}"
    return parse_kernel(text, "triton", strategy="starters", idea=idea)


def _output(result: Value, *, last: bool) -> list[str]:
    dtype = result.dtype if last or "float" not in result.dtype else "float32"
    return [f"_out = torch.empty({result.shape!r}, dtype=torch.{dtype}, device=_device)"]


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
    first = next(iter(read))
    entry = [
        *checks(graph, scalars),
        f"_device = {first}.device",
        *(f"{name} = {name}.contiguous()" for name in read),
        *lines,
        "return _out",
    ]
    return "\n".join(
        [
            header("reduction", knobs),
            '"""Reductions with what leads to them and what follows them."""\n',
            IMPORTS,
            helpers_for("\n".join(kernels)),
            *kernels,
            "",
            opening(graph, "reduction", knobs),
            indented(entry),
            "",
        ]
    )
