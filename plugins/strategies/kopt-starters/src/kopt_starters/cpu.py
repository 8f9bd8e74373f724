"""When the C++ structures suit, and the knobs that they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_starters.operator import Layout

_BLOCKS = (64, 256, 1024, 2048)
_TILE_BYTES = 256 * 1024
_PARALLEL_BYTES = 128 * 1024
"""Below this, starting threads costs more than they save."""
_STREAM_BYTES = 4 * 2**20


def rows(layout: Layout) -> bool:
    """Suits a reduction over the last dimensions."""
    return layout.rowwise


def few_rows(layout: Layout) -> bool:
    """Suits rows that are too few to keep all threads busy, and long enough to share."""
    scarce = layout.outer < 4 * layout.device.units
    return layout.rowwise and layout.device.units > 1 and scarce and layout.count >= 16384


def columns(layout: Layout) -> bool:
    """Suits a reduction over a dimension that is not the last."""
    return not layout.rowwise


def few_columns(layout: Layout) -> bool:
    """Suits a long strided dimension with few results."""
    few = layout.outer * layout.inner < 4 * 256 * layout.device.units
    return not layout.rowwise and layout.device.units > 1 and few and layout.count >= 1024


def row_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of kernels that write as much as they read."""
    return {**sum_knobs(layout), "STREAM": _stream(layout)}


def flat_knobs(nbytes: int, device: Device) -> dict[str, Knob]:
    """Knobs of kernels that read and write every element of a flat range once: ``nbytes`` in all."""
    units = device.units
    return {
        "THREADS": Knob(
            default=units if nbytes > 2 * _PARALLEL_BYTES else 1,
            choices=tuple(sorted({1, max(1, units // 2), units})),
        ),
        "VECTOR": _lanes(device),
        "STREAM": Knob(default=int(nbytes > 2 * _STREAM_BYTES), choices=(0, 1)),
    }


def sum_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of kernels that only read."""
    return {
        "THREADS": _threads(layout),
        "VECTOR": _vector(layout),
        "UNROLL": Knob(default=4, choices=(2, 4)),
        "PREFETCH": Knob(default=512, choices=(0, 512)),
    }


def shared_row_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of kernels whose threads share each row: two threads at least."""
    return {**row_knobs(layout), "THREADS": several_threads(layout)}


def shared_sum_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of sums whose threads share each row."""
    return {**sum_knobs(layout), "THREADS": several_threads(layout)}


def column_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of kernels over a strided dimension that write as much as they read."""
    return {
        "THREADS": _threads(layout),
        "VECTOR": _vector(layout),
        "BLOCK": _block(layout),
        "STREAM": _stream(layout),
    }


def column_sum_knobs(layout: Layout) -> dict[str, Knob]:
    """Knobs of sums over a strided dimension."""
    return {
        "THREADS": _threads(layout),
        "VECTOR": _vector(layout),
        "BLOCK": _block(layout),
        "UNROLL": Knob(default=4, choices=(2, 4)),
    }


def _bytes(layout: Layout) -> int:
    return layout.outer * layout.count * layout.inner * layout.itemsize


def _threads(layout: Layout) -> Knob:
    units = layout.device.units
    default = units if _bytes(layout) > _PARALLEL_BYTES else 1
    return Knob(default=default, choices=tuple(sorted({1, max(1, units // 2), units})))


def several_threads(layout: Layout) -> Knob:
    """Two threads at least, for kernels whose threads share what they work on."""
    units = layout.device.units
    return Knob(default=units, choices=tuple(sorted({max(2, units // 2), units})))


def _vector(layout: Layout) -> Knob:
    return _lanes(layout.device)


def _lanes(device: Device) -> Knob:
    if device.architecture in ("x86_64", "AMD64"):
        return Knob(default=16, choices=(8, 16))
    return Knob(default=4, choices=(4, 8))


def _stream(layout: Layout) -> Knob:
    # What would soon be evicted anyway is better written past the cache.
    return Knob(default=int(_bytes(layout) > _STREAM_BYTES), choices=(0, 1))


def _block(layout: Layout) -> Knob:
    # As wide as the cache holds a tile; where it holds none, long runs of memory count for more.
    # In any case every thread needs work.
    busy = layout.outer * layout.inner // (2 * layout.device.units)
    fits = [block for block in _BLOCKS if block <= busy] or [_BLOCKS[0]]
    cached = [b for b in fits if b >= 256 and b * layout.count * layout.itemsize <= _TILE_BYTES]
    return Knob(default=(cached or fits)[-1], choices=_BLOCKS)
