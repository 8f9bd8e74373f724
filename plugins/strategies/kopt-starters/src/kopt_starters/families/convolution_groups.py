"""Convolutions as products on Hopper's tensor cores, in CUDA C++: warpgroups go down the result."""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from kopt_starters.convolution.rendering import identifier
from kopt_starters.cuda import ELEMENTS, launch
from kopt_starters.families import convolution_places as places
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest
from kopt_starters.hardware import has_warpgroup_products, shared_bytes
from kopt_starters.rendering import header, template

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


_SHALLOW = 144
"""Products of a result up to which memory is what takes longest."""
_DEEP = 384
"""Products of a result from which on 64 pixels by 128 channels are faster than twice 64 by 64."""


class _Plan(NamedTuple):
    """How a block divides its work."""

    rows: int
    """Channels of the result that a block has."""
    groups: int
    pixels: int
    """Of a strip."""
    down: bool
    """Whether a product is 64 channels by all pixels; else 64 pixels by all channels."""
    align: int
    """Bytes, whose multiples what is written at once begins at."""

    @property
    def sums(self) -> int:
        """That a thread has."""
        return self.rows * self.pixels // 128


def groups_kernel(graph: Graph, task: Convolution, device: Device) -> Candidate | None:
    """Return the kernel of a convolution; None where its weights or rows do not fit.

    For Hopper and one group, without strides in height or of a transposed one, with a depth of whole
    products (32 bytes of channels) and rows of whole pieces of 16 bytes; in float32 where the
    reference is done in TF32.
    """
    piece = places.piece(task)
    fits = task.groups == 1 and task.cin % (2 * piece) == 0 and task.x.shape[-1] % piece == 0
    strided = max(task.stride) > 1 if task.transposed else task.stride[1] > 1
    if not fits or strided or task.taps == 1 or task.kept_exact:
        return None
    plan = next(_plans(task, device), None) if has_warpgroup_products(device) else None
    if plan is None:
        return None
    knobs = {
        "GROUPS": nearest(plan.groups, [2, 3, 4]),
        "PIXELS": nearest(plan.pixels, _across(plan.down)),
        "LINES": nearest(16 if task.extent[1] > 1 else 1, [1, 4, 8, 16, 32]),
    }
    knobs["ALIGN"] = nearest(plan.align, [16, 32])
    if not plan.down:
        staged = [n for n in (8, 16, 24, 32, 64) if plan.rows % n == 0]
        knobs["STAGED"] = nearest(_staged(plan.rows), staged)
    element = ELEMENTS[task.x.dtype]
    added = element.wide.replace("value", "bias[channel]")
    given = {
        "header": _header(task, plan, knobs, device.units),
        "element": element.type,
        "include": element.include,
        "cin": str(task.cin),
        "cout": str(task.cout),
        "rows": str(plan.rows),
        "columns": "PIXELS" if plan.down else "BLOCK_N",
        "products": _products(task, plan, [int(each) for each in knobs["PIXELS"].choices]),
        "bias_parameter": "" if task.bias is None else "const Element *__restrict__ bias,",
        "bias": "" if task.bias is None else "bias + block_n,",
        "added": "" if task.bias is None else (
            f"const float added = channel < channels ? {added} : 0.0f;"),
        "plus": "" if task.bias is None else " + added",
        "weight": places.weight(task, flipped=task.transposed),
        **places.geometry(task, _reads(task)),
    }  # fmt: skip
    results = "channels" if plan.down else "pixels"
    given["results"] = template(f"convolution_groups_{results}.cu").substitute(given).rstrip("\n")
    return filled_cuda("convolution_groups.cu", graph, _IDEA, knobs, given)


def _products(task: Convolution, plan: _Plan, pixels: Sequence[int]) -> str:
    """Return the instruction, for each number of pixels where those are its columns."""
    if not plan.down:
        return _product(task, plan.rows)
    parts = [f"#if PIXELS == {each}\n{_product(task, each)}\n#endif" for each in pixels]
    return "\n".join(parts)


def _product(task: Convolution, columns: int) -> str:
    """Return the instruction for 64 rows and so many columns."""
    count = columns // 2
    kind = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[task.x.dtype]
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{32 // task.itemsize}.f32.{kind}.{kind}"
    layout = ", 0, 0" if task.itemsize == 2 else ""
    named = ", ".join(f"%{n}" for n in range(count))
    sums = ", ".join(f'"+f"(c[{n}])' for n in range(count))
    return (
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                 "{name} "\n'
        f'                 "{{{named}}}, %{count}, %{count + 1}, p, 1, 1{layout};\\n}}"\n'
        f'                 : {sums}\n                 : "l"(a), "l"(b), "r"(added));'
    )


def _reads(task: Convolution) -> tuple[places.Reads, places.Reads, places.Reads]:
    """Return where results read; a transposed convolution as an ordinary one of flipped weights."""
    d, h, w = (
        places.Reads(1, padding - (taps - 1) * dilation, dilation) if task.transposed
        else places.Reads(stride, -padding, dilation)
        for stride, padding, dilation, taps in zip(
            task.stride, task.padding, task.dilation, task.kernel, strict=True)
    )  # fmt: skip
    return d, h, w


def _staged(rows: int) -> int:
    """Return how many channels go out at a time: a whole number of times, in eights."""
    return max(n for n in range(8, _MOST_STAGED + 1, 8) if rows % n == 0)


def _across(down: bool) -> list[int]:
    """Return for how many pixels a strip may be."""
    return [64, 96, 120, 128] if down else [64, 128]


def _plans(task: Convolution, device: Device) -> Iterator[_Plan]:
    """Return how the work may be divided, best first, as measured on an H200.

    All channels of the result in one block, so that the input is read once; as wide as possible;
    with as many groups as fit. Where writing takes longest, whole sectors are written.
    """
    whole = [task.cout // n for n in (1, 2, 4) if task.cout % (64 * n) == 0]
    parts = [-(-task.cout // (8 * n)) * 8 for n in range(1, 5)]
    options = [n for n in whole if n <= 128] + [n for n in parts if n <= _MOST_ROWS]
    depth = task.taps * task.cin
    for rows, wide, groups in product(options, (True, False), (4, 3, 2)):
        down = rows % 64 == 0 and (wide or rows == 64 or depth < _DEEP)
        sectors = wide and depth <= _SHALLOW
        pixels = (120 if down and not sectors else 128) if wide else 64
        plan, held = _Plan(rows, groups, pixels, down, 32 if sectors else 16), _held(task, pixels)
        registers = plan.sums + held + _REGISTERS <= 65536 // (128 * groups)
        if registers and held <= _HELD and _shared(task, plan) <= shared_bytes(device):
            yield plan


def _held(task: Convolution, pixels: int) -> int:
    """Return the registers that a thread needs for its part of a row."""
    piece, across = places.piece(task), _reads(task)[2]
    span = (pixels - 1) * across.stride + (task.kernel[2] - 1) * across.step + 1
    pieces = -(-(across.begin % piece + span) // piece)
    items = task.kernel[0] * pieces * (task.cin // piece)
    return -(-items // 128) * piece * 4


class _Shape(NamedTuple):
    """What decides about shared memory."""

    weights: int
    """Bytes."""
    lines: int
    """Lines of pixels that a group keeps, of 16 bytes of channels each."""
    stride: int
    reach: int
    """Pixels that a strip needs beside its own, apart by the stride."""
    stage: int
    """Channels that a group has on their way out at most; 0: two times STAGED of them."""


def _shape(task: Convolution, plan: _Plan) -> _Shape:
    (_, height, width), taps = _reads(task), task.kernel
    kept = (taps[1] - 1) * height.step + 2
    return _Shape(
        weights=task.itemsize * task.taps * plan.rows * task.cin,
        lines=kept * taps[0] * (task.cin // places.piece(task)),
        stride=width.stride,
        reach=(taps[2] - 1) * width.step // width.stride + 1,
        stage=32 if plan.down else 0,
    )


def _shared(task: Convolution, plan: _Plan) -> int:
    """Return the bytes of shared memory that a block takes."""
    shape, piece = _shape(task, plan), places.piece(task)
    pitch = shape.stride * (plan.pixels + shape.reach) // 2 * 2 + 1
    staged = shape.stage or min(plan.rows, 2 * _staged(plan.rows))
    edge = plan.align // task.itemsize
    stage = staged * ((plan.pixels + edge) // piece // 2 * 2 + 1) * 16
    return shape.weights + plan.groups * (shape.lines * pitch * 16 + stage)


def _written(task: Convolution) -> str:
    """Return how many pixels of a strip are written, as the kernel has it."""
    edge = f"(ALIGN // {task.itemsize})"
    common = gcd(32, task.extent[2] * task.itemsize, prod(task.extent) * task.itemsize)
    extra = {32: "0", 16: f"ALIGN // 32 * {32 // task.itemsize}"}.get(common, edge)
    return f"((PIXELS - {extra}) // {edge} * {edge})"


def _header(task: Convolution, plan: _Plan, knobs: Mapping[str, Knob], units: int) -> str:
    x, weight = identifier(task.x), identifier(task.weight)
    shape, piece = _shape(task, plan), places.piece(task)
    depth, height, width = task.extent
    parts = f"cdiv({height}, LINES) * cdiv({width}, {_written(task)})"
    strips = f"{x}.shape[0] * {depth} * {parts}"
    down = -(-task.cout // plan.rows)
    grid = f"{down} * min(cdiv({strips}, GROUPS), cdiv({units}, {down}))"
    pitch = f"({shape.stride} * (PIXELS + {shape.reach}) // 2 * 2 + 1)"
    staged = shape.stage or f"min({plan.rows}, 2 * STAGED)"
    stage = f"16 * {staged} * ((PIXELS + ALIGN // {task.itemsize}) // {piece} // 2 * 2 + 1)"
    given = [x, weight, *([] if task.bias is None else [identifier(task.bias)])]
    return header(
        "//",
        [
            f"requires = {places.required(task)}",
            *launch("convolve", [grid], ["128 * GROUPS"], [*given, "out", strips]),
            f'shared = "{shape.weights} + GROUPS * ({shape.lines * 16} * {pitch} + {stage})"',
        ],
        knobs,
    )  # fmt: skip
