"""What kernels of convolutions in CUDA C++ have in common: where results read, and their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kopt_starters.convolution.rendering import identifier
from kopt_starters.cuda import ELEMENTS
from kopt_starters.rendering import template

if TYPE_CHECKING:
    from kopt_starters.convolution.task import Convolution

_AXES = ("depth", "height", "width")


class Reads(NamedTuple):
    """Result y takes tap t from input (y * stride + begin + t * step) / spread, where that is whole."""

    stride: int
    begin: int
    step: int
    spread: int = 1

    def places(self, taps: int) -> list[int]:
        """Return where the first results of all phases read, from the first of the input on."""
        return [at for phase in range(self.spread) for at in self._places_of(phase, taps)]

    def phases(self, taps: int) -> int:
        """Return how many of ``spread`` results side by side are reached by a tap."""
        return sum(bool(self._places_of(phase, taps)) for phase in range(self.spread))

    def _places_of(self, phase: int, taps: int) -> list[int]:
        at = [phase + self.begin + t * self.step for t in range(taps)]
        return [each // self.spread for each in at if each % self.spread == 0]

    def ends(self, taps: int) -> tuple[int, int]:
        """Return the first and the last of them."""
        found = self.places(taps)
        return min(found), max(found)


def piece(task: Convolution) -> int:
    """Return the elements of 16 bytes."""
    return 16 // task.itemsize


def reads(task: Convolution) -> tuple[Reads, Reads, Reads]:
    """Return where results read, in depth, height and width."""
    d, h, w = (
        Reads(1, padding, -dilation, stride) if task.transposed
        else Reads(stride, -padding, dilation)
        for stride, padding, dilation in zip(task.stride, task.padding, task.dilation, strict=True)
    )  # fmt: skip
    return d, h, w


def weight(task: Convolution) -> str:
    """Return the weight of a tap between two channels, in C++."""
    channels = "in * COUT + row" if task.transposed else "row * CIN + in"
    at = f"((long long){channels}) * {task.taps} + tap"
    return f"nearest(weight[{at}])" if task.itemsize == 4 else f"weight[{at}]"


def source(task: Convolution) -> str:
    """Return what kernels have in common, in C++: the element, extents, and where results read."""
    before, axes = (1,) * (5 - len(task.x.shape)), reads(task)
    named = {
        "{}": (*before, *task.x.shape[2:]), "out_{}": task.extent, "taps_{}": task.kernel,
        "stride_{}": [each.stride for each in axes], "begin_{}": [each.begin for each in axes],
        "step_{}": [each.step for each in axes], "spread_{}": [each.spread for each in axes],
    }  # fmt: skip
    given = {
        name.format(axis): str(value)
        for name, values in named.items()
        for axis, value in zip(_AXES, values, strict=True)
    }
    given |= {"element": ELEMENTS[task.x.dtype].type, "cin": str(task.cin), "cout": str(task.cout)}
    return template("convolution_places.cu").substitute(given).rstrip("\n")


def required(task: Convolution) -> str:
    """Return what a launch plan requires: all extents but that of the batch."""
    x, weights = identifier(task.x), identifier(task.weight)
    same = [f"{x}.shape[{n}] == {task.x.shape[n]}" for n in range(1, len(task.x.shape))]
    same += [f"{weights}.shape[{n}] == {extent}" for n, extent in enumerate(task.weight.shape)]
    return "[" + ", ".join(f'"{each}"' for each in same) + "]"
