"""Maximum and average pooling over two dimensions, in CUDA C++: bands of rows in shared memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kopt.model.expressions import evaluate
from kopt_starters import rendering
from kopt_starters.cuda import ACCESS_BYTES, ELEMENTS, launch
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.hardware import capability, shared_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt_starters.families.pooling import Pool
    from kopt_starters.graph import Graph

_ASYNCHRONOUS = 80
"""The capability from which on copies to shared memory are asynchronous, and a maximum keeps NaN."""
_MOST_ROWS = 40
"""Rows of a band that a thread can hold in registers."""
_TAPS = 32
"""Positions of a window, along one dimension, that are written out one by one."""
_BLOCKS = 3
"""Blocks that a multiprocessor has beside each other at least: one computes as another one reads."""


def bands_kernel(graph: Graph, pool: Pool, device: Device) -> Candidate | None:
    """Return the kernel of a pooling; None where windows are too large, or bands do not fit.

    Means of 16-bit numbers are left out: what is found down a column is kept as an element.
    """
    element, single = ELEMENTS[pool.x.dtype], pool.x.dtype == "float32"
    fits = pool.dims == 2 and max(pool.window[1:]) <= _TAPS and (single or pool.kind == "max")
    if not fits or capability(device) < _ASYNCHRONOUS:
        return None
    room = shared_bytes(device)
    most = [n for n in (1, 2, 4, 8, 12, 16) if _rows(pool, n) <= _MOST_ROWS]
    rows = [n for n in most if _bytes(pool, n) * _BLOCKS <= room]
    if not rows:
        return None
    threads = max(32, min(512, 1 << (pool.pooled[2] - 1).bit_length()))
    knobs = {
        "ROWS": nearest(12, rows),
        "THREADS": nearest(threads, [threads // 2, threads]),
    }
    given = {
        "header": _header(pool, knobs),
        "include": element.include,
        "element": element.type,
        "wide": element.wide,
        "constants": _constants(pool),
    }
    idea = f"{pool.kind} pooling: bands of rows on chip, down columns, then along rows"
    return filled_cuda("pool_bands.cu", graph, idea, knobs, given)


def _rows(pool: Pool, results: int) -> int:
    """Return how many rows so many rows of results need."""
    return (results - 1) * pool.stride[1] + (pool.window[1] - 1) * pool.dilation[1] + 1


def _bytes(pool: Pool, results: int) -> int:
    """Return the bytes of shared memory that a block takes."""
    return int(evaluate(_shared(pool), {"ROWS": results}))


def _shared(pool: Pool) -> str:
    """Return the bytes of a band, which may begin and end within a piece, by ROWS."""
    span = f"((ROWS - 1) * {pool.stride[1]} + {_rows(pool, 1)})"
    return f"{span} * {pool.extents[2] * ELEMENTS[pool.x.dtype].size} + {2 * ACCESS_BYTES}"


def _constants(pool: Pool) -> str:
    names = ("H", "W", "OH", "OW", "KH", "KW", "SH", "SW", "PH", "PW", "DH", "DW")
    of = (pool.extents, pool.pooled, pool.window, pool.stride, pool.padding, pool.dilation)
    values = [each for three in of for each in three[1:]]
    numbers = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    flags = {"MAXIMUM": pool.kind == "max", "INCLUDE": pool.include}
    written = ", ".join(f"{name} = {str(value).lower()}" for name, value in flags.items())
    divisor = pool.fixed_divisor or 0
    return f"constexpr int {numbers}, DIVISOR = {divisor};\nconstexpr bool {written};"


def _header(pool: Pool, knobs: Mapping[str, Knob]) -> str:
    x, (height, width) = rendering.identifier(pool.x.name), pool.extents[1:]
    grid = f"prod({x}.shape[:-2]) * cdiv({pool.pooled[1]}, ROWS)"
    required = [f"{x}.shape[-2] == {height}", f"{x}.shape[-1] == {width}"]
    return rendering.header(
        "//",
        [
            f"requires = {json.dumps(required)}",
            *launch("bands", [grid], ["THREADS"], [x, "out", f"{x}.numel"]),
            f'shared = "{_shared(pool)}"',
        ],
        knobs,
    )
