"""Convolutions as products on Hopper's tensor cores, in CUDA C++: warpgroups go down the result."""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from kopt.model.expressions import evaluate
from kopt_starters.convolution.rendering import identifier
from kopt_starters.cuda import ELEMENTS, group_product, launch
from kopt_starters.families import convolution_places as places
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.hardware import has_warpgroup_products, shared_bytes
from kopt_starters.rendering import header, part, template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph

_IDEA = "convolution as a product by warpgroups that go down the result, channels stay first"
_MOST_ROWS = 256
"""Channels that one product of 64 pixels has at most."""
_MOST_STAGED = 32
"""Channels that go through shared memory at a time on their way out, where they are columns."""
_HELD = 64
"""Registers for what a thread holds of a row; more would have to be spilled."""
_REGISTERS = 64
"""That a thread takes beside its sums and what it holds of a row."""
_REGISTERS_SPREAD = 96
"""The same where results lie between zeros."""
_NARROW = 64
"""Pixels of a strip from which on it was measured."""
_SHALLOW = 144
"""Products of a result up to which memory is what takes longest."""
_DEEP = 384
"""Products of a result from which on 64 pixels by 128 channels are faster than twice 64 by 64."""


class _Plan(NamedTuple):
    """How a block divides its work."""

    rows: int
    """Channels of the result that a block has."""
    warpgroups: int
    pixels: int
    """Of a strip."""
    down: bool
    """Whether a product is 64 channels by all pixels; else 64 pixels by all channels."""
    align: int
    """Bytes, whose multiples what is written at once begins at."""


def warpgroups_kernel(graph: Graph, task: Convolution, device: Device) -> Candidate | None:
    """Return the kernel of a convolution; None where its weights or rows do not fit.

    For Hopper and one group, with a depth of whole products (32 bytes of channels) and rows of whole
    pieces of 16 bytes; without strides in height, other than of a transposed one, where results have
    to be in sixty-fours of channels; in float32 where the reference is done in TF32.
    """
    piece = places.piece(task)
    fits = task.groups == 1 and task.cin % (2 * piece) == 0 and task.x.shape[-1] % piece == 0
    strided = task.stride[1] > 1 and not task.transposed
    if not fits or strided or task.taps == 1 or task.kept_exact:
        return None
    plan = next(_plans(task, device), None) if has_warpgroup_products(device) else None
    if plan is None:
        return None
    across = _across(task, plan.down)
    knobs = {
        "WARPGROUPS": nearest(plan.warpgroups, [2, 3, 4]),
        "PIXELS": nearest(
            plan.pixels, [n for n in across if plan.pixels <= 2 * n <= 4 * plan.pixels]
        ),
        "LINES": nearest(16 if task.extent[1] > 1 else 1, [1, 4, 8, 16, 32]),
        "ALIGN": nearest(plan.align, [16, 32]),
    }
    if not plan.down:
        staged = [n for n in (8, 16, 24, 32, 64) if plan.rows % n == 0]
        knobs["STAGED"] = nearest(_staged(plan.rows), staged)
    element = ELEMENTS[task.x.dtype]
    added = element.wide.replace("value", "bias[channel]")
    given = {
        "header": _header(task, plan, knobs, device.units),
        "include": element.include,
        "wgmma": part("wgmma.cu"),
        "rows": str(plan.rows),
        "columns": "PIXELS" if plan.down else "BLOCK_N",
        "products": _products(task, plan, [int(each) for each in knobs["PIXELS"].choices]),
        "bias_parameter": "" if task.bias is None else "const Element *__restrict__ bias,",
        "bias": "" if task.bias is None else "bias + block_n,",
        "added": "" if task.bias is None else (
            f"const float added = channel < channels ? {added} : 0.0f;"),
        "plus": "" if task.bias is None else " + added",
        "weight": places.weight(task),
        "places": places.source(task),
    }  # fmt: skip
    results = "channels" if plan.down else "pixels"
    given["results"] = (
        template(f"convolution_warpgroups_{results}.cu").substitute(given).rstrip("\n")
    )
    return filled_cuda("convolution_warpgroups.cu", graph, _IDEA, knobs, given)


def _products(task: Convolution, plan: _Plan, pixels: Sequence[int]) -> str:
    """Return the instruction, for each number of pixels where those are its columns."""
    if not plan.down:
        return group_product(task.x.dtype, plan.rows)
    parts = [
        f"#if PIXELS == {each}\n{group_product(task.x.dtype, each)}\n#endif" for each in pixels
    ]
    return "\n".join(parts)


def _staged(rows: int) -> int:
    """Return how many channels go out at a time: a whole number of times, in eights."""
    return max(n for n in range(8, _MOST_STAGED + 1, 8) if rows % n == 0)


def _across(task: Convolution, down: bool) -> list[int]:
    """Return for how many pixels a strip may be: a warp writes its results of a row at once."""
    spread = places.reads(task)[2].spread
    if spread == 1:
        return [32, 40, _NARROW, 96, 120, 128] if down else [_NARROW, 128]
    most = 512 // task.itemsize // spread
    return [n for n in (24, 40, 64, 96) if n <= most]


def _plans(task: Convolution, device: Device) -> Iterator[_Plan]:
    """Return how the work may be divided, best first, as measured on an H200.

    All channels of the result in one block, so that the input is read once; as wide as possible;
    with as many groups as fit. Where writing takes longest, whole sectors are written. Strips narrower
    than _NARROW, which were not measured, are for what fits in no other way.
    """
    whole = [task.cout // n for n in (1, 2, 4) if task.cout % (64 * n) == 0]
    parts = [-(-task.cout // (8 * n)) * 8 for n in range(1, 5)]
    plain = _plain(task)
    options = [n for n in whole if n <= 128] + [n for n in parts if n <= _MOST_ROWS and plain]
    depth = task.taps * task.cin
    sectors = depth <= _SHALLOW or not plain
    for narrow, rows in product((False, True) if plain else (False,), options):
        columns = rows % 64 == 0
        down = columns and (rows == 64 or depth < _DEEP or not plain)
        widths = [n for n in _across(task, down) if n < 128 or sectors or not columns]
        if plain:
            widths = [n for n in widths if narrow == (n < _NARROW)]
        for pixels, warpgroups in product(reversed(widths), (4, 3, 2)):
            align = 32 if sectors and (pixels > 64 or not plain) else 16
            plan = _Plan(rows, warpgroups, pixels, down, align)
            if _fits(task, plan, device):
                yield plan


def _held(task: Convolution, pixels: int) -> int:
    """Return the registers that a thread needs for its part of a row."""
    piece, across = places.piece(task), places.reads(task)[2]
    left, right = across.ends(task.kernel[2])
    span = (pixels - 1) * across.stride + right - left + 1
    pieces = -(-(left % piece + span) // piece)
    items = task.kernel[0] * pieces * (task.cin // piece)
    return -(-items // 128) * piece * 4


def _shared(task: Convolution, plan: _Plan) -> str:
    """Return the bytes of shared memory that a block takes, by its knobs."""
    (_, height, width), taps, size = places.reads(task), task.kernel, task.itemsize
    top, bottom = height.ends(taps[1])
    left, right = width.ends(taps[2])
    weights = size * task.taps * plan.rows * task.cin
    # Rows of the input with all planes, 16 bytes of channels a line; results on their way out.
    lines = (bottom - top + 2) * taps[0] * (task.cin // places.piece(task))
    across = f"(PIXELS + {(right - left) // width.stride + 1})"
    pitch = f"({width.stride} * {across} // 2 * 2 + 1)"
    staged = "32" if plan.down else f"min({plan.rows}, 2 * STAGED)"
    out_pitch = f"((PIXELS * {width.spread} + ALIGN // {size}) // {16 // size} // 2 * 2 + 1)"
    return f"{weights} + WARPGROUPS * 16 * ({lines} * {pitch} + {staged} * {out_pitch})"


def _fits(task: Convolution, plan: _Plan, device: Device) -> bool:
    """Return whether a block's registers and shared memory hold what a plan puts there."""
    plain, held = _plain(task), _held(task, plan.pixels)
    sums = plan.rows * plan.pixels // 128 * places.reads(task)[2].phases(task.kernel[2])
    registers = sums + held + (_REGISTERS if plain else _REGISTERS_SPREAD)
    chosen = {
        "WARPGROUPS": plan.warpgroups, "PIXELS": plan.pixels, "ALIGN": plan.align,
        "STAGED": _staged(plan.rows),
    }  # fmt: skip
    enough = held <= _HELD and registers <= 65536 // (128 * plan.warpgroups)
    return enough and int(evaluate(_shared(task, plan), chosen)) <= shared_bytes(device)


def _plain(task: Convolution) -> bool:
    """Return whether results are side by side: not transposed with strides."""
    return all(each.spread == 1 for each in places.reads(task))


def _written(task: Convolution) -> str:
    """Return how many results of a row a strip writes, as the kernel has it."""
    edge, spread = f"(ALIGN // {task.itemsize})", places.reads(task)[2].spread
    common = gcd(32, task.extent[2] * task.itemsize, prod(task.extent) * task.itemsize)
    extra = {32: "0", 16: f"ALIGN // 32 * {32 // task.itemsize}"}.get(common, edge)
    unit = f"({spread} * {edge})" if spread % 2 else str(spread * places.piece(task))
    return f"((PIXELS * {spread} - {extra}) // {unit} * {unit})"


def _header(task: Convolution, plan: _Plan, knobs: Mapping[str, Knob], units: int) -> str:
    x, weight = identifier(task.x), identifier(task.weight)
    depth, height, width = task.extent
    parts = f"cdiv({-(-height // places.reads(task)[1].spread)}, LINES) * cdiv({width}, {_written(task)})"
    strips = f"{x}.shape[0] * {depth} * {parts}"
    down = -(-task.cout // plan.rows)
    grid = f"{down} * min(cdiv({strips}, WARPGROUPS), cdiv({units}, {down}))"
    given = [x, weight, *([] if task.bias is None else [identifier(task.bias)])]
    return header(
        "//",
        [
            f"requires = {places.required(task)}",
            *launch("convolve", [grid], ["128 * WARPGROUPS"], [*given, "out", strips]),
            f'shared = "{_shared(task, plan)}"',
        ],
        knobs,
    )  # fmt: skip
