"""Convolutions as products on tensor cores, in CUDA C++: channels stay first."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt_starters.convolution.rendering import identifier
from kopt_starters.cuda import ELEMENTS, launch
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.rendering import header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt_starters.convolution.task import Convolution, Three
    from kopt_starters.graph import Graph

_SHARED = 224 * 1024
"""Bytes of shared memory that a block may have on Hopper, less what the system keeps of them."""
_REGISTERS = 56
"""That a thread takes beside its sums and what it holds of a row, as compiled for sm_90."""
_MOST_ROWS = 128
"""Channels of the result that a block has at most."""
_ITEMS = 24
"""Pieces of 16 bytes that a thread may hold on their way to shared memory."""
_AXES = ("depth", "height", "width")
_IDEA = "convolution as a product on tensor cores, weights stay on chip, channels stay first"


def channels_kernel(graph: Graph, task: Convolution, device: Device) -> Candidate | None:
    """Return the kernel of a convolution; None where its weights or rows do not fit.

    For one group, with channels in whole tiles of sixteen and rows of whole pieces of 16 bytes; in
    float32 where the reference is done in TF32. A transposed one without a stride is one with its
    kernel turned round.
    """
    width = task.x.shape[-1]
    fits = task.groups == 1 and task.cin % 16 == 0 and width % _piece(task) == 0
    unit = (1, 1, 1)
    turned = not task.transposed or (task.stride == unit and not any(task.extra))
    if not fits or not turned or task.taps == 1 or task.kept_exact:
        return None
    padding = _padding(task)
    rows = _rows(task, padding) if min(padding) >= 0 else None
    if rows is None:
        return None
    knobs, element = _knobs(task, padding, rows), ELEMENTS[task.x.dtype]
    bias = element.wide.replace("value", "bias[block_m + channel]")
    places = {
        "header": _header(task, rows, padding, knobs, device.units),
        "element": element.type,
        "include": element.include,
        "kind": {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[task.x.dtype],
        "shape": f"m16n8k{32 // task.itemsize}",
        "cin": str(task.cin),
        "cout": str(task.cout),
        "rows": str(rows),
        "bias_parameter": "" if task.bias is None else "const Element *__restrict__ bias,",
        "added": "0.0f" if task.bias is None else f"channel < channels ? {bias} : 0.0f",
        "weight": _weight(task),
        **_geometry(task, padding),
    }  # fmt: skip
    return filled_cuda("convolution_channels.cu", graph, _IDEA, knobs, places)


def _padding(task: Convolution) -> Three:
    """Return the zeros before each dimension, of the input that the kernel goes over."""
    if not task.transposed:
        return task.padding
    d, h, w = (
        dilation * (taps - 1) - padding
        for dilation, taps, padding in zip(task.dilation, task.kernel, task.padding, strict=True)
    )
    return d, h, w


def _piece(task: Convolution) -> int:
    """Return the elements of 16 bytes."""
    return 16 // task.itemsize


def _weight(task: Convolution) -> str:
    """Return the weight of a tap between two channels, in C++."""
    at = f"((long long)row * CIN + in) * {task.taps} + tap"
    if task.transposed:
        at = f"((long long)in * COUT + row) * {task.taps} + ({task.taps - 1} - tap)"
    return f"nearest(weight[{at}])" if task.itemsize == 4 else f"weight[{at}]"


def _geometry(task: Convolution, padding: Three) -> Mapping[str, str]:
    before = (1,) * (5 - len(task.x.shape))
    named = {
        "{}": (*before, *task.x.shape[2:]), "out_{}": task.extent, "taps_{}": task.kernel,
        "stride_{}": task.stride, "dilation_{}": task.dilation, "padding_{}": padding,
    }  # fmt: skip
    return {
        name.format(axis): str(value)
        for name, values in named.items()
        for axis, value in zip(_AXES, values, strict=True)
    }


def _rows(task: Convolution, padding: Three) -> int | None:
    """Return how many channels of the result a block has: as many as fit with their weights."""
    for blocks in range(1, 9):
        rows = -(-task.cout // (16 * blocks)) * 16
        if rows <= _MOST_ROWS and _fits(task, padding, rows, 64):
            return rows
    return None


def _fits(task: Convolution, padding: Three, rows: int, pixels: int) -> bool:
    held = _held(task, padding, pixels)
    return _shared(task, padding, rows, pixels) <= _SHARED and held <= _ITEMS


def _shared(task: Convolution, padding: Three, rows: int, pixels: int) -> int:
    """Return the bytes of shared memory that a block takes."""
    piece = _piece(task)
    weights = task.taps * rows * (task.cin + piece)
    lines = _span(task, padding, pixels) * (task.cin + piece)
    return task.itemsize * (weights + max(lines, rows * (pixels + piece)))


def _held(task: Convolution, padding: Three, pixels: int) -> int:
    """Return the pieces of a row that each of 256 threads holds."""
    pieces = _span(task, padding, pixels) // _piece(task) * task.cin
    return -(-pieces // 256)


def _span(task: Convolution, padding: Three, pixels: int) -> int:
    """Return the pixels of a row that a tile's results need, in whole pieces."""
    piece = _piece(task)
    before = -padding[2] % piece + (task.kernel[2] - 1) * task.dilation[2] + piece
    return (before + (pixels - 1) * task.stride[2]) // piece * piece


def _knobs(task: Convolution, padding: Three, rows: int) -> dict[str, Knob]:
    high = max(n for n in (16, 32, 48, 64) if rows % n == 0 and (n < rows or rows < 64))
    pixels = 128 if _fits(task, padding, rows, 128) else 64
    across = max(16, pixels * rows // high // 8)  # for eight warps
    # Of a multiprocessor: more than fit would begin when the first have gone over everything.
    registers = high * across // 32 + 4 * _held(task, padding, pixels) + _REGISTERS
    blocks = 1 if registers > 128 else min(2, _SHARED // _shared(task, padding, rows, pixels))
    return {
        "BLOCK_N": nearest(pixels, [64, 128, 256]),
        "WARP_M": nearest(high, [n for n in (16, 32, 48, 64) if rows % n == 0]),
        "WARP_N": nearest(across, [16, 32, 64]),
        "BLOCKS": nearest(blocks, [1, 2, 3, 4]),
    }


def _header(
    task: Convolution, rows: int, padding: Three, knobs: Mapping[str, Knob], units: int
) -> str:
    x, weight = identifier(task.x), identifier(task.weight)
    same = [f"{x}.shape[{n}] == {task.x.shape[n]}" for n in range(1, len(task.x.shape))]
    same += [f"{weight}.shape[{n}] == {extent}" for n, extent in enumerate(task.weight.shape)]
    required = ", ".join(f'"{each}"' for each in same)
    lines = prod(task.extent[:2])
    tiles = f"{x}.shape[0] * {lines} * cdiv({task.extent[2]}, BLOCK_N)"
    down = -(-task.cout // rows)
    grid = f"{down} * min({tiles}, cdiv(BLOCKS * {units}, {down}))"
    piece = _piece(task)
    before = -padding[2] % piece + (task.kernel[2] - 1) * task.dilation[2] + piece
    span = f"({before} + (BLOCK_N - 1) * {task.stride[2]}) // {piece} * {piece}"
    pixels = f"max({span} * {task.cin + piece}, {rows} * (BLOCK_N + {piece}))"
    weights = task.taps * rows * (task.cin + piece)
    given = [x, weight, *([] if task.bias is None else [identifier(task.bias)])]
    return header(
        "//",
        [
            f"requires = [{required}]",
            *launch("convolve", [grid], [f"32 * ({rows} // WARP_M) * (BLOCK_N // WARP_N)"],
                    [*given, "out", tiles]),
            f'shared = "{task.itemsize} * ({weights} + {pixels})"',
        ],
        knobs,
    )  # fmt: skip
