"""The knobs of a product over a copy of a convolution's input that has its channels last."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.convolution.knobs import (
    FEW_CHANNELS,
    in_parts,
    order,
    powers,
)
from kopt_starters.gpu import nearest, power_of_two
from kopt_starters.hardware import copies_tiles, operands_in_registers

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_starters.convolution.task import Convolution, Three

_FEW_OUT = 32
"""Output channels below which the phases of a transposed convolution may be channels of one."""
_FEW_ROWS = 64
"""Rows that a warpgroup's product has at least."""


def foldings(task: Convolution) -> list[bool]:
    """Whether all phases of a transposed convolution are channels of one product; the best first."""
    phases = task.transposed and max(task.stride) > 1
    return [True, False] if phases and task.cout < _FEW_OUT else [False]


def _reach(task: Convolution, side: int) -> int:
    """Return the taps of one dimension, or how far apart a transposed one's phases read."""
    kernel, stride = task.kernel[side], task.stride[side]
    if not task.transposed or stride == 1:
        return kernel
    first, apart = task.padding[side], task.dilation[side]
    reads = [at - tap * apart for at in range(first, first + stride) for tap in range(kernel)]
    places = [place // stride for place in reads if place % stride == 0]
    return max(places, default=0) - min(places, default=0) + 1


def packed(task: Convolution, fold: bool) -> Three:
    """Return which dimensions' taps lie beside the channels in a copy with channels last.

    Few channels would leave most of a tensor core's depth empty.
    """
    found, deep = [0, 0, 0], task.cin
    for side in (2, 1, 0):
        phases = task.transposed and task.stride[side] > 1
        if deep >= FEW_CHANNELS or (phases and not fold):
            break
        if task.kernel[side] > 1:
            found[side], deep = 1, deep * _reach(task, side)
    return (found[0], found[1], found[2])


def _line(deep: int, itemsize: int) -> tuple[list[int], int, float]:
    """Return how many channels a step may take, how many is best, and its cost (1: no waste).

    A row of a tile in shared memory has 128 bytes at best; channels are padded to whole steps.
    """
    shorter = {128: 1.0, 64: 1.15, 32: 1.4}
    costs = {
        depth: -(-deep // depth) * depth / deep * shorter[depth * itemsize]
        for depth in powers(16, 128 // itemsize)
    }
    best = min(costs, key=lambda depth: costs[depth])
    return [depth for depth in costs if costs[depth] < 1.4 * costs[best]], best, costs[best]


def _cost(task: Convolution, near: int) -> float:
    """Return the work per result, relative to the least, of ``near`` results as channels of one."""
    rows, kernel = task.cout * near, task.kernel[2]
    padded = max(_FEW_ROWS, power_of_two(rows)) / rows
    reach = -(-(near + kernel - 1) // near) * near / kernel
    # A tile of 64 rows reads its pixels for half as many products as one of 128.
    narrow = 1.25 if rows <= _FEW_ROWS else 1.0
    return padded * reach * narrow * _line(task.cin * near, task.itemsize)[2]


def _layout(task: Convolution, pack: Three, fold: bool) -> dict[str, Knob]:
    """Return how tiles come from the copy, and what is computed beside each other."""
    phases = task.transposed and max(task.stride) > 1 and not fold
    strided = [s > 1 and not chosen for s, chosen in zip(task.stride, pack, strict=True)]
    copies: tuple[str, ...] = ("tiles", "gather")
    if phases and task.stride[2] > 1:
        copies = ("spread", "tiles") if task.stride[2] > 2 else ("tiles", "spread")
    elif not task.transposed and any(strided):
        copies = ("gather",)
    plain = (task.stride[2], task.dilation[2], pack[2]) == (1, 1, 0) and task.kernel[2] > 1
    near = (1, 2, 4) if plain and not phases and not fold and task.cout <= _FEW_ROWS else (1,)
    joins = (2, 1) if phases and task.stride[2] == 2 else (1,)
    return {
        "COPY": Knob(default=copies[0], choices=copies),
        "NEAR": Knob(default=min(near, key=lambda n: _cost(task, n)), choices=near),
        "JOIN": Knob(default=joins[0], choices=joins),
    }


def halves_suit(task: Convolution, device: Device) -> bool:
    """Whether exact operands may lie in memory in halves: where copying tiles is hardware's."""
    return task.kept_exact and copies_tiles(device)


def last_knobs(
    task: Convolution,
    device: Device,
    pack: Three,
    fold: bool,
    *,
    plain: bool = True,
    halves: bool = False,
) -> dict[str, Knob]:
    """Return the knobs of the product over a copy of the input with channels last.

    ``plain``: nothing follows in the same kernel. ``halves``: the copy holds each number as two
    float16s. Half as many pixels a tile then, as two sums lie in registers, but nothing is left to
    do between load and product.
    """
    layout = _layout(task, pack, fold)
    near = int(layout["NEAR"].default)
    taps = prod(_reach(task, side) for side in range(3) if pack[side])
    depths, depth, _ = _line(task.cin * taps * near, 2 if halves else task.itemsize)
    rows = task.cout * (prod(task.stride) if fold else near)
    least = _FEW_ROWS if layout["JOIN"].default == 2 else 16
    widest = max(least, min(128, power_of_two(rows)))
    blocks = task.groups * -(-rows // widest)
    wide = 256 if widest == (128 if near > 1 else 64 if any(pack) and not fold else 0) else 128
    tight, parts = operands_in_registers(device), in_parts(task, device)
    wide = 64 if parts else min(wide, 128) if tight else wide
    pixels = next(
        (n for n in (256, 128) if n <= wide and task.pixels // near // n * blocks >= device.units),
        64,
    )
    orders = order(task)
    orders["ORDER"] = Knob(
        default="channels" if widest >= _FEW_ROWS else "pixels", choices=("channels", "pixels")
    )
    if halves:
        pixels = min(pixels, 128)
        orders["PRECISION"] = Knob(default="halves", choices=("halves",))
    # An exact product has a piece of its sums in registers too, or both parts of an operand; what
    # follows has its intermediate results there.
    most = 128 * 128 if plain and not task.kept_exact else 64 * 128
    sums = widest * pixels * int(layout["JOIN"].default)
    many = sums > most or layout["COPY"].default == "gather"
    many = many or parts or (tight and widest * pixels > 64 * 64)
    return {
        **layout,
        "CHANNELS": nearest(widest, powers(max(16, widest // 2), widest)),
        "PIXELS": nearest(pixels, [64, 128, 256]),
        "DEPTH": nearest(depth, depths),
        **orders,
        "num_warps": nearest(8 if many else 4, [4, 8]),
        "num_stages": nearest(3, [2, 3, 4]),
    }
