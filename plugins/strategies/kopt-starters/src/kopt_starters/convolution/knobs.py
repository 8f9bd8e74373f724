"""Which kernels suit a convolution's shapes, and the knobs that they declare."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.gpu import nearest, power_of_two
from kopt_starters.hardware import operands_in_registers, sums_in_tensor_memory

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_starters.convolution.task import Convolution

_UNROLLED = 512
"""Multiply-adds per lane that a direct kernel may be unrolled to."""
FEW_CHANNELS = 16
"""Below, taps and channels are one dimension of the product: a tensor core's depth is filled."""


def powers(low: int, high: int) -> list[int]:
    """Return the powers of two within both bounds."""
    return [1 << n for n in range(16) if low <= 1 << n <= high]


def flattenings(task: Convolution) -> list[bool]:
    """Whether taps and channels are one dimension of the product; both where either may win."""
    if task.taps == 1 or task.cin >= 2 * FEW_CHANNELS:
        return [False]
    return [True] if task.cin < FEW_CHANNELS else [False, True]


def direct_suits(task: Convolution) -> bool:
    """Whether few multiply-adds per element leave tensor cores nothing to do."""
    few = task.cin <= 4 and task.cout <= 4
    return few and not task.transposed and task.cin * task.taps <= 128


def fused_suits(deep: Convolution, point: Convolution) -> bool:
    """Whether a depthwise convolution can be computed on the way into a pointwise one."""
    depthwise = deep.cin == 1 and not deep.transposed and deep.taps <= 32
    return depthwise and point.pointwise and point.groups == 1


def in_parts(task: Convolution, device: Device) -> bool:
    """Whether operands in several parts of TF32 need smaller tiles, or more warps.

    Not on Hopper, whose defaults are what was measured.
    """
    elsewhere = operands_in_registers(device) or sums_in_tensor_memory(device)
    return elsewhere and task.kept_exact


def _tile(task: Convolution, device: Device) -> dict[str, Knob]:
    """Knobs of a tile of channels x pixels that tensor cores compute."""
    widest = max(16, min(128, power_of_two(task.cout)))
    channels = nearest(widest, powers(max(16, widest // 4), widest))
    blocks = task.groups * -(-task.cout // int(channels.default))
    wide = 256 if widest == 32 else 64 if in_parts(task, device) else 128
    pixels = next(
        (n for n in (wide, wide // 2) if -(-task.pixels // n) * blocks >= device.units), wide // 4
    )
    warps = 8 if int(channels.default) * pixels >= 64 * 128 else 4
    return {
        "CHANNELS": channels,
        "PIXELS": nearest(pixels, powers(max(16, pixels // 2), pixels * 2)),
        "num_warps": nearest(warps, [4, 8]),
    }


def order(task: Convolution) -> dict[str, Knob]:
    """Which operand comes first: a tensor core takes 64 rows of it at once."""
    wide = task.itemsize == 4
    first = "pixels" if wide or power_of_two(task.cout) < 64 else "channels"
    found = {"ORDER": Knob(default=first, choices=("channels", "pixels"))}
    if wide:
        # As PyTorch computes a float32 convolution unless told otherwise, where it is seen to.
        default = "tf32x3" if task.kept_exact else "tf32"
        choices = ("tf32x3",) if task.tf32 is False else ("tf32", "tf32x3")
        found["PRECISION"] = Knob(default=default, choices=choices)
    return found


def gemm_knobs(task: Convolution, device: Device, flat: bool) -> dict[str, Knob]:
    """Return the knobs of the product over channels and taps."""
    if task.pointwise and light(task):
        return _pointwise_knobs(task, device)
    deep = 32 if task.itemsize == 4 else 64
    most = max(16, min(deep, power_of_two(task.cin * (task.taps if flat else 1))))
    tile = _tile(task, device)
    # More than 32 gathered elements to a thread do not fit its registers.
    fit = 32 * 32 * int(tile["num_warps"].default) // int(tile["PIXELS"].default)
    wanted = min(32 if flat else deep, fit)
    return {
        **tile,
        "DEPTH": nearest(wanted, powers(max(16, most // 2), most)),
        **order(task),
        "num_stages": nearest(3, [2, 3, 4]),
    }


def light(task: Convolution) -> bool:
    """Whether a product of few channels is bounded by memory's rate, not by tensor cores."""
    return task.cin < 128


def _pointwise_knobs(task: Convolution, device: Device) -> dict[str, Knob]:
    """Return the knobs of a pointwise convolution of few channels: memory's rate bounds it.

    float32 pixels come with their channels far apart, as a warpgroup's product does not take
    them; that of two warps does, and copies them on the way.
    """
    wide = task.itemsize == 4
    channels = max(16, min(128, power_of_two(task.cout)))
    most = max(16, min(64, power_of_two(task.cin)))
    orders = order(task)
    orders["ORDER"] = Knob(default="pixels" if wide else "channels", choices=("channels", "pixels"))
    return {
        "CHANNELS": nearest(channels, powers(max(16, channels // 4), channels)),
        "PIXELS": nearest(64 if wide else 128, [32, 64, 128]),
        "num_warps": nearest(8 if in_parts(task, device) else 2 if wide else 4, [2, 4, 8]),
        "DEPTH": nearest(min(32, most), powers(max(16, most // 4), most)),
        **orders,
        "num_stages": nearest(3, [2, 3, 4]),
    }


def fused_knobs(point: Convolution, device: Device) -> dict[str, Knob]:
    """Return the knobs of a pointwise convolution whose input is computed on the way."""
    most = max(16, min(64, power_of_two(point.cin)))
    tile = _tile(point, device)
    if operands_in_registers(device):
        tile["PIXELS"] = nearest(64, [32, 64, 128])
        tile["num_warps"] = nearest(8, [4, 8])
    return {
        **tile,
        # Every element of a step is a convolution of its own: more of them spill.
        "DEPTH": nearest(16, powers(max(16, most // 4), most)),
        **order(point),
    }


def direct_knobs(task: Convolution) -> dict[str, Knob]:
    """Return the knobs of the kernel in which each lane computes ROWS results of a column."""
    work, width = task.cin * prod(task.kernel), power_of_two(task.extent[2])
    most = max(1, min(16, _UNROLLED // work, task.extent[1]))
    widest = max(32, min(512, width))
    columns = nearest(256, powers(max(32, widest // 8), widest))
    lanes = 64 if task.x.dtype == "float32" else 128
    return {
        "ROWS": nearest(min(8, most), powers(1, most)),
        "COLS": columns,
        "num_warps": nearest(max(1, min(4, int(columns.default) // lanes)), [1, 2, 4, 8]),
    }
