"""Convolutions as products on tensor cores, in CUDA C++: channels stay first."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.expressions import evaluate
from kopt_starters.convolution.rendering import identifier
from kopt_starters.cuda import ELEMENTS, launch
from kopt_starters.families import convolution_places as places
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.hardware import capability, shared_bytes
from kopt_starters.rendering import header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph

_TENSOR_CORES = 80
"""The capability from which on tensor cores take bfloat16, TF32 and products 8 or 16 deep."""
_EASILY_HELD = 16
"""Of these so many as leave registers for the rest."""
_REGISTERS = 56
"""That a thread takes beside its sums and what it holds of a row, as compiled for sm_90."""
_MOST_ROWS = 128
"""Channels of the result that a block has at most."""
_ITEMS = 24
"""Pieces of 16 bytes that a thread may hold on their way to shared memory."""
_IDEA = "convolution as a product on tensor cores, weights stay on chip, channels stay first"


def channels_kernel(graph: Graph, task: Convolution, device: Device) -> Candidate | None:
    """Return the kernel of a convolution; None where its weights or rows do not fit.

    For one group, with channels in whole tiles of sixteen and rows of whole pieces of 16 bytes; in
    float32 where the reference is done in TF32. A result of a transposed one takes those taps that
    reach it: results beside each other in a row are done together, by their phase.
    """
    width = task.x.shape[-1]
    fits = task.groups == 1 and task.cin % 16 == 0 and width % places.piece(task) == 0
    if not fits or task.taps == 1 or task.kept_exact or capability(device) < _TENSOR_CORES:
        return None
    rows = _rows(task, device)
    if rows is None:
        return None
    knobs, element = _knobs(task, rows, device), ELEMENTS[task.x.dtype]
    bias = element.wide.replace("value", "bias[block_m + channel]")
    given = {
        "header": _header(task, rows, knobs, device.units),
        "include": element.include,
        "kind": {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[task.x.dtype],
        "shape": f"m16n8k{32 // task.itemsize}",
        "rows": str(rows),
        "bias_parameter": "" if task.bias is None else "const Element *__restrict__ bias,",
        "added": "0.0f" if task.bias is None else f"channel < channels ? {bias} : 0.0f",
        "weight": places.weight(task),
        "places": places.source(task),
    }  # fmt: skip
    return filled_cuda("convolution_channels.cu", graph, _IDEA, knobs, given)


def _rows(task: Convolution, device: Device) -> int | None:
    """Return how many channels of the result a block has: as many as fit with their weights."""
    for blocks in range(1, 9):
        rows = -(-task.cout // (16 * blocks)) * 16
        if rows <= _MOST_ROWS and _fits(task, rows, 64, device):
            return rows
    return None


def _fits(task: Convolution, rows: int, pixels: int, device: Device) -> bool:
    return _taken(task, rows, pixels) <= shared_bytes(device) and _held(task, pixels) <= _ITEMS


def _taken(task: Convolution, rows: int, pixels: int) -> int:
    """Return the bytes of shared memory that a block of so many channels and pixels takes."""
    return int(evaluate(_shared(task, rows), {"BLOCK_N": pixels}))


def _shared(task: Convolution, rows: int) -> str:
    """Return the bytes of shared memory that a block takes, by BLOCK_N."""
    piece, spread = places.piece(task), places.reads(task)[2].spread
    weights = task.taps * rows * (task.cin + piece)
    results = f"{rows} * (BLOCK_N * {spread} + {piece})"
    return f"{task.itemsize} * ({weights} + max({_span(task)} * {task.cin + piece}, {results}))"


def _held(task: Convolution, pixels: int) -> int:
    """Return the pieces of a row that each of 256 threads holds."""
    pieces = int(evaluate(_span(task), {"BLOCK_N": pixels})) // places.piece(task) * task.cin
    return -(-pieces // 256)


def _span(task: Convolution) -> str:
    """Return the pixels of a row that a tile's results need, in whole pieces, by BLOCK_N."""
    stride, piece = places.reads(task)[2].stride, places.piece(task)
    return f"({_before(task)} + (BLOCK_N - 1) * {stride}) // {piece} * {piece}"


def _before(task: Convolution) -> int:
    """Return the pixels that one result of each phase needs, from the start of a piece, and a piece."""
    (first, last), piece = places.reads(task)[2].ends(task.kernel[2]), places.piece(task)
    return first % piece + last - first + piece


def _knobs(task: Convolution, rows: int, device: Device) -> dict[str, Knob]:
    high = max(n for n in (16, 32, 48, 64) if rows % n == 0 and (n < rows or rows < 64))
    pixels = 128 if _fits(task, rows, 128, device) and _held(task, 128) <= _EASILY_HELD else 64
    phases = places.reads(task)[2].spread
    across = max(16, pixels * rows // high // 8)  # for eight warps
    # Of a multiprocessor: more than fit would begin when the first have gone over everything.
    registers = high * across // 32 * phases + 4 * _held(task, pixels) + _REGISTERS
    blocks = 1 if registers > 128 else min(2, shared_bytes(device) // _taken(task, rows, pixels))
    return {
        "BLOCK_N": nearest(pixels, [64, 128, 256]),
        "WARP_M": nearest(high, [n for n in (16, 32, 48, 64) if rows % n == 0]),
        "WARP_N": nearest(across, [16, 32, 64]),
        "BLOCKS": nearest(blocks, [1, 2, 3, 4]),
    }


def _header(task: Convolution, rows: int, knobs: Mapping[str, Knob], units: int) -> str:
    x, weight = identifier(task.x), identifier(task.weight)
    lines, spread = prod(task.extent[:2]), places.reads(task)[2].spread
    tiles = f"{x}.shape[0] * {lines} * cdiv({task.extent[2]}, BLOCK_N * {spread})"
    down = -(-task.cout // rows)
    grid = f"{down} * min({tiles}, cdiv(BLOCKS * {units}, {down}))"
    given = [x, weight, *([] if task.bias is None else [identifier(task.bias)])]
    return header(
        "//",
        [
            f"requires = {places.required(task)}",
            *launch("convolve", [grid], [f"32 * ({rows} // WARP_M) * (BLOCK_N // WARP_N)"],
                    [*given, "out", tiles]),
            f'shared = "{_shared(task, rows)}"',
        ],
        knobs,
    )  # fmt: skip
