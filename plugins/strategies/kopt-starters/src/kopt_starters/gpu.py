"""When the Triton structures suit, and the knobs that they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.operator import Layout, Structure

if TYPE_CHECKING:
    from collections.abc import Iterable

_REGISTER_TILE = 32768
"""Elements of a tile that still fit into the registers of one program."""
_SHARED_BYTES = 160 * 1024
"""Shared memory that the fetched-ahead rows of one program may take."""


def row_structures(operator: str) -> tuple[Structure, ...]:
    """Return the structures of an operator whose result has the shape of x, over the last dims."""
    return (
        Structure(
            "triton", f"{operator}_split.py.txt", "pieces of long rows, second read from L2",
            _split_suits, _split_knobs,
        ),
        Structure(
            "triton", f"{operator}_rows.py.txt", "one pass, rows in registers",
            _rows_suit, _rows_knobs,
        ),
        Structure(
            "triton", f"{operator}_persistent.py.txt", "fixed grid, rows fetched ahead",
            _persistent_suits, _persistent_knobs,
        ),
        Structure(
            "triton", f"{operator}_looped.py.txt", "two sweeps over a long row",
            _looped_suits, _looped_knobs,
        ),
    )  # fmt: skip


def column_structures(operator: str) -> tuple[Structure, ...]:
    """Return the structures over a dimension that is not the last."""
    return (
        Structure(
            "triton", f"{operator}_columns.py.txt", "one pass, a tile of columns in registers",
            _columns_suit, _columns_knobs,
        ),
        Structure(
            "triton", f"{operator}_columns_looped.py.txt", "two sweeps over tiles of columns",
            _columns_loop, _columns_loop_knobs,
        ),
    )  # fmt: skip


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below ``number`` (1 for 0)."""
    return 1 << max(0, number - 1).bit_length()


def _powers(low: int, high: int) -> list[int]:
    return [1 << n for n in range(low.bit_length() - 1, high.bit_length()) if low <= 1 << n <= high]


def nearest(wanted: int, choices: Iterable[int]) -> Knob:
    """Return a knob whose default is the choice nearest to ``wanted`` in ratio."""
    offered = sorted({*choices})
    default = min(offered, key=lambda c: (max(c, wanted) / min(c, wanted), c))
    return Knob(default=default, choices=tuple(offered))


def _warps(elements: int, per_thread: int) -> Knob:
    """Return warps for a tile, ``per_thread`` elements to a thread or up to 4 times off."""
    wanted = max(1, elements // (32 * per_thread))
    low, high = max(1, wanted // 4), min(32, max(4, wanted * 4))
    return nearest(min(wanted, 32), _powers(power_of_two(min(low, high)), high))


def _rows_suit(layout: Layout) -> bool:
    return layout.rowwise and layout.count <= _REGISTER_TILE


def _rows_knobs(layout: Layout) -> dict[str, Knob]:
    block = power_of_two(layout.count)
    rows = _powers(1, max(1, min(128, 8192 // block)))
    knob = nearest(max(1, 1024 // block), rows)
    return {"ROWS": knob, "num_warps": _warps(int(knob.default) * block, 16)}


def _persistent_suits(layout: Layout) -> bool:
    fits = 256 <= layout.count <= 16384
    return layout.rowwise and fits and layout.outer > 2 * layout.device.units


def _persistent_knobs(layout: Layout) -> dict[str, Knob]:
    block, units = power_of_two(layout.count), layout.device.units
    warps = _warps(block, 16)
    stages = [s for s in (1, 2, 3, 4) if s * block * layout.itemsize <= _SHARED_BYTES]
    fit = max(1, min(8, 64 // int(warps.default)))
    return {
        "PROGRAMS": nearest(units * fit, [units * n for n in (1, 2, 4, 8)]),
        "STAGES": nearest(2, stages[:3]),
        "num_warps": warps,
    }


def _looped_suits(layout: Layout) -> bool:
    # Reductions with programs that wait for one another do better on longer rows.
    return layout.rowwise and 4096 < layout.count <= 1 << 17 and not _split_suits(layout)


def _looped_knobs(layout: Layout) -> dict[str, Knob]:
    blocks = _powers(1024, min(32768, power_of_two(layout.count)))
    block = 16384 if layout.itemsize == 2 else 4096
    warps = 32 if layout.itemsize == 2 else 16
    return {"BLOCK": nearest(block, blocks), "num_warps": nearest(warps, [4, 8, 16, 32])}


def _split_suits(layout: Layout) -> bool:
    return layout.rowwise and layout.count >= 16384 and layout.outer < 2 * layout.device.units


def _split_knobs(layout: Layout) -> dict[str, Knob]:
    rows, most = max(1, layout.outer), power_of_two(layout.count) // 4096
    wanted = power_of_two(-(-64 * layout.device.units // rows))
    pieces = sorted({max(1, min(most, 1024, size)) for size in (wanted // 4, wanted // 2, wanted)})
    fit = max(1, layout.device.cache_bytes // 2 // (layout.count * layout.itemsize))
    return {
        "PIECES": nearest(max(1, min(most, 1024, wanted)), pieces),
        # A launch for a few rows at a time costs more than a second read of all of them does.
        "GROUP": nearest(rows, sorted({min(rows, fit), rows})),
        "BLOCK": nearest(4096, [1024, 2048, 4096, 8192]),
        "num_warps": nearest(8, [4, 8, 16]),
    }


def _columns_suit(layout: Layout) -> bool:
    return not layout.rowwise and layout.count <= 1024


def _columns_knobs(layout: Layout) -> dict[str, Knob]:
    tile, widest = power_of_two(layout.count), max(16, power_of_two(layout.inner))
    blocks = _powers(16, min(widest, 1024, max(16, _REGISTER_TILE // tile)))
    knob = nearest(max(16, 8192 // tile), blocks[-5:])
    # Reads of 16 bytes for a thread, several rows of them.
    return {"BLOCK": knob, "num_warps": _warps(int(knob.default) * tile, 128 // layout.itemsize)}


def _columns_loop(layout: Layout) -> bool:
    return not layout.rowwise and layout.count > 128


def _columns_loop_knobs(layout: Layout) -> dict[str, Knob]:
    blocks = _powers(32, max(64, min(512, power_of_two(layout.inner))))
    # Narrower blocks where wide ones would leave multiprocessors without work.
    busy = layout.outer * layout.inner // (2 * layout.device.units)
    block = nearest(max(32, min(128, busy)), blocks)
    return {
        "ROWS": nearest(4096 // int(block.default), [4, 16, 32, 64]),
        "BLOCK": block,
        "num_warps": nearest(4, [4, 8]),
    }


def _sum_knobs(
    layout: Layout, rows: list[int], blocks: list[int], programs: int, warps: int = 4
) -> dict[str, Knob]:
    """Knobs of a sum whose default tiles make ``programs`` programs before they share work."""
    wanted = power_of_two(4 * layout.device.units // max(1, programs))
    most = max(1, power_of_two(layout.count) // 1024)
    parts = sorted({1, max(1, min(most, wanted // 2)), max(1, min(most, wanted, 1024))})
    return {
        "ROWS": nearest(rows[len(rows) // 2], rows),
        "BLOCK": nearest(blocks[len(blocks) // 2], blocks),
        "PARTS": nearest(max(1, min(most, wanted)), parts),
        "num_warps": nearest(warps, [4, 8]),
    }


def _row_sum_knobs(layout: Layout) -> dict[str, Knob]:
    blocks = _powers(512, max(512, min(2048, power_of_two(layout.count))))
    short = max(1, 2048 // power_of_two(layout.count))
    return _sum_knobs(layout, sorted({short, 2 * short, 4 * short}), blocks, layout.outer // short)


def _column_sum_knobs(layout: Layout) -> dict[str, Knob]:
    widest = max(64, min(128, power_of_two(layout.inner)))
    blocks = _powers(max(32, widest // 4), widest)
    programs = layout.outer * -(-layout.inner // blocks[len(blocks) // 2])
    # Four elements of a tile for a thread.
    return _sum_knobs(layout, [8, 16, 32], blocks, programs, 8)


SUM_STRUCTURES = (
    Structure(
        "triton", "sum_rows.py.txt", "blocks of rows in registers",
        lambda layout: layout.rowwise, _row_sum_knobs,
    ),
    Structure(
        "triton", "sum_columns.py.txt", "tiles of columns in registers",
        lambda layout: not layout.rowwise, _column_sum_knobs,
    ),
)  # fmt: skip
"""The structures of a sum."""
