"""Knobs of the structures of a reduction; defaults are what was fastest where it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.gpu import power_of_two

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.device import Device
    from kopt_starters.codegen.steps import Step

REGISTER_TILE = 32768
"""Elements of a tile that still fit into the registers of one program."""
_MOST_PARTS = 2048
SHORT = 1 << 16
"""Elements of a row of which programs that wait for one another keep pieces in registers."""
LONG = 1 << 20
"""Elements of a row whose pieces still fit into the registers of as many programs as wait."""
FOLDED_ROWS = 1024
"""Positions of joined rows that a program has."""
_AT_ONCE = 128 * 1024
"""Bytes of a multiprocessor's pieces, of all its programs: so much of each stays in L2."""


def kept_at_once(step: Step) -> int:
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


def whole_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of tiles of whole rows in registers."""
    block, least = power_of_two(step.cols), kept_at_once(step)
    most = max(least, min(512, 8192 // block, power_of_two(step.rows)))
    wanted = (
        max(least, 2048 // block) if step.rowwise else max(256 // _itemsize(step), 2048 // block)
    )
    rows = _choice(wanted, _powers(least, most))
    return {
        "ROWS": rows,
        "num_warps": _warps(int(rows.default) * block, 16 if step.rowwise else 32),
    }


def waiting_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of pieces in registers, whose programs wait for one another."""
    piece = _choice(4096, _pieces(step, device, 16384))
    warps = _choice(int(piece.default) // 1024, _powers(1, 16))
    # The fewer registers a thread has, the more programs are at work while others wait.
    registers = 96 if _itemsize(step) > 2 else 80
    return {"PIECE": piece, "num_warps": warps,
            "maxnreg": Knob(default=registers, choices=(64, 80, 96, 128))}  # fmt: skip


def sweeping_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of pieces that are read twice, whose programs wait for one another."""
    pieces, itemsize = _pieces(step, device, 1 << 20), _itemsize(step)
    # Of 64 registers a thread there are 32 warps on a multiprocessor.
    warps = 8 if itemsize > 2 else 4
    if pieces[0] > 8192:
        warps *= 2
    piece = _choice(_AT_ONCE * warps // (32 * itemsize), pieces)
    wanted = min(512 * warps, int(piece.default))
    block = _choice(wanted, _powers(1024, min(8192, int(piece.default))))
    return {"PIECE": piece, "BLOCK": block, "num_warps": _choice(warps, _powers(1, 16)),
            "maxnreg": Knob(default=64, choices=(40, 64, 96, 128))}  # fmt: skip


def _pieces(step: Step, device: Device, most: int) -> tuple[int, ...]:
    """Return sizes of pieces of which a row has no more than there are multiprocessors."""
    least = max(2048, power_of_two(-(-step.cols // min(128, device.units))))
    return _powers(least, max(least, min(most, power_of_two(step.cols) // 2)))


def looped_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of a sweep over tiles, a program for each few rows."""
    if step.rowwise:
        return _long_row_knobs(step, device)
    width = min(128 // _itemsize(step), power_of_two(step.rows))  # a tile reads 128 bytes of a row
    while width > 16 and step.rows // width < 2 * device.units:
        width //= 2
    rows = _choice(width, _powers(min(16, width), 256))
    block = _choice(min(power_of_two(step.cols), 16), _powers(4, 256))
    # Rows that begin in between groups of 16 bytes are read an element at a time: more have to wait.
    odd = bool(step.kept) and step.kept[-1].extent * _itemsize(step) % 16 != 0
    tile = int(rows.default) * int(block.default)
    warps = _choice(16, (8, 16, 32)) if odd and tile >= 1024 else _choice(4, (2, 4, 8))
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def folded_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of joined rows: a thread reads 16 bytes of each of a few.

    Half as many, and of half the positions, where a position goes with each value.
    """
    many = 2 if any(len(each.statistic.types) > 1 for each in step.reductions) else 1
    return {
        "ROWS": Knob(default=FOLDED_ROWS // many, choices=(256, 512, 1024, 2048)),
        "BLOCK": Knob(default=8 // many, choices=(2, 4, 8, 16)),
        "num_warps": Knob(default=4, choices=(2, 4, 8)),
    }


def _itemsize(step: Step) -> int:
    """Return the bytes of an element of the largest argument."""
    largest = max(step.loads, key=lambda load: load.argument.elements)
    return {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int64": 8}.get(
        largest.argument.dtype, 4
    )


def _long_row_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return knobs so that rows that programs work on at once stay in the cache for a second read."""
    if not step.full:
        block = _choice(min(4096, power_of_two(step.cols)), _powers(16, 8192))
        rows = _choice(max(1, 1024 // int(block.default)), _powers(1, 64))
        return {"ROWS": rows, "BLOCK": block,
                "num_warps": _warps(int(block.default) * int(rows.default), 16)}  # fmt: skip
    block = _choice(min(16384, power_of_two(step.cols)), _powers(16, 32768))
    rows = _choice(max(1, 1024 // int(block.default)), _powers(1, 64))
    most = 16 if _itemsize(step) > 2 else 32
    wanted = max(1, int(block.default) * int(rows.default) // 512)
    return {"ROWS": rows, "BLOCK": block, "num_warps": _choice(min(most, wanted), _powers(1, 32))}


def split_knobs(step: Step, device: Device) -> dict[str, Knob]:
    """Return the knobs of several programs a row, a launch for each sweep."""
    looped = looped_knobs(step, device)
    if step.rowwise:
        block = _choice(min(4096, power_of_two(step.cols)), _powers(16, 8192))
        rows = _choice(max(1, 1024 // int(block.default)), _powers(1, 64))
        looped = {"ROWS": rows, "BLOCK": block,
                  "num_warps": _warps(int(block.default) * int(rows.default), 8)}  # fmt: skip
    tiles = -(-step.rows // int(looped["ROWS"].default))
    blocks = -(-step.cols // int(looped["BLOCK"].default))
    wanted = min(max(2, 8 * device.units // tiles), max(2, blocks // 4), _MOST_PARTS)
    if step.full:
        wanted = min(max(2, 64 * device.units // tiles), max(2, blocks // 2), _MOST_PARTS)
    parts = _choice(wanted, _powers(2, min(_MOST_PARTS, power_of_two(blocks) * 2)))
    return {**looped, "PARTS": parts}
