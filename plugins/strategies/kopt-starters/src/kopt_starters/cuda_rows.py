"""When the CUDA C++ structures of row-wise operators suit, and the knobs that they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.cuda import ACCESS_BYTES, piece_of
from kopt_starters.gpu import nearest, power_of_two
from kopt_starters.hardware import shared_bytes
from kopt_starters.operator import Structure

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_starters.operator import Layout

_LONGEST = 32768
"""Elements of a row that fit into the registers of a block."""
_PER_THREAD = 64
"""Elements of a row that fit into a thread's registers."""
_BLOCK = 1024
"""Threads of a block at most."""


def row_structures(operator: str) -> tuple[Structure, ...]:
    """Return the structures of an operator whose result has the shape of x, over the last dims."""
    return (
        Structure(
            "cuda", "rows_split.cu", "blocks share long rows, second read from L2",
            _split_suits, _split_knobs,
        ),
        Structure(
            "cuda", f"{operator}_rows.cu", "one read, rows in registers", _rows_suit, _rows_knobs
        ),
        Structure(
            "cuda", "rows_looped.cu", "two sweeps, the row in shared memory as far as it fits",
            _looped_suits, _looped_knobs,
        ),
    )  # fmt: skip


def shared_row_knobs(count: int, outer: int, itemsize: int, device: Device) -> dict[str, Knob]:
    """Knobs of kernels with ROWS rows of LANES threads to a block, which read a row in turns."""
    pieces = power_of_two(count // piece_of(itemsize, count))
    lanes = _around(min(256, max(pieces // 4, min(8, pieces))), 1, 512)
    return {"LANES": lanes, "ROWS": _rows(lanes, outer, device), "UNROLL": nearest(4, (2, 4, 8))}


def _around(wanted: int, low: int, high: int) -> Knob:
    """Return a knob of powers of two: ``wanted``, its half and its double, within bounds."""
    near = (wanted // 2, wanted, 2 * wanted)
    return nearest(wanted, [each for each in near if low <= each <= high] or [low])


def _rows(lanes: Knob, outer: int, device: Device) -> Knob:
    """Return rows of a block: whole warps and no block too large, whatever ``lanes`` is."""
    widths = [int(each) for each in lanes.choices]
    low, high = max(1, 32 // min(widths)), max(1, _BLOCK // max(widths))
    busy = outer // (2 * device.units)
    wanted = min(max(1, 128 // int(lanes.default)), power_of_two(busy + 1) // 2 or 1)
    return _around(max(low, min(high, wanted)), low, high)


def _rows_suit(layout: Layout) -> bool:
    return layout.rowwise and 0 < layout.count <= _LONGEST and layout.outer > 0


def _rows_knobs(layout: Layout) -> dict[str, Knob]:
    pieces = power_of_two(layout.count // piece_of(layout.itemsize, layout.count))
    low = max(1, power_of_two(layout.count) // _PER_THREAD)
    wanted = max(power_of_two(layout.count // 16), min(8, pieces))
    lanes = _around(min(_BLOCK, wanted), low, _BLOCK)
    nbytes = layout.outer * layout.count * layout.itemsize
    return {
        "LANES": lanes,
        "ROWS": _rows(lanes, layout.outer, layout.device),
        "STREAM": Knob(default=int(2 * nbytes > layout.device.cache_bytes), choices=(0, 1)),
    }


def _looped_suits(layout: Layout) -> bool:
    fits = 8192 < layout.count < 1 << 30 and layout.outer > 0
    return layout.rowwise and fits and not _split_suits(layout)


def _looped_knobs(layout: Layout) -> dict[str, Knob]:
    nbytes = piece_of(layout.itemsize, layout.count) * layout.itemsize
    pieces = layout.count * layout.itemsize // nbytes
    most = shared_bytes(layout.device)
    whole, half = min(pieces, most // nbytes), min(pieces, most // 2 // nbytes)
    return {
        "THREADS": nearest(1024 if pieces > 4096 else 512, (256, 512, 1024)),
        "UNROLL": nearest(ACCESS_BYTES // nbytes * 4, (2, 4, 8)),
        "KEPT": Knob(default=whole, choices=tuple(sorted({0, half, whole}))),
    }


def _split_suits(layout: Layout) -> bool:
    few = 0 < layout.outer < 2 * layout.device.units
    return layout.rowwise and few and 16384 <= layout.count < 1 << 30


def _split_knobs(layout: Layout) -> dict[str, Knob]:
    wanted = power_of_two(4 * layout.device.units // layout.outer)
    most = max(1, min(256, power_of_two(layout.count) // 4096))
    return {
        "PARTS": _around(min(most, wanted), 1, most),
        "THREADS": nearest(512, (256, 512, 1024)),
        "UNROLL": nearest(4, (2, 4, 8)),
    }


def _sum_suits(layout: Layout) -> bool:
    return layout.rowwise and layout.outer > 0 and layout.count > 0


def _sum_knobs(layout: Layout) -> dict[str, Knob]:
    knobs = shared_row_knobs(layout.count, layout.outer, layout.itemsize, layout.device)
    blocks = -(-layout.outer // int(knobs["ROWS"].default))
    most = min(1024, layout.count // 8192)
    parts = min(most, -(-4 * layout.device.units // blocks))
    if parts > 1:
        knobs["PARTS"] = nearest(parts, {max(1, parts // 2), parts, min(most, 2 * parts)})
    return knobs


SUM_STRUCTURES = (
    Structure(
        "cuda", "sum_rows.cu", "rows read once, 16 bytes at a time", _sum_suits, _sum_knobs
    ),
)  # fmt: skip
"""The structures of a sum."""
