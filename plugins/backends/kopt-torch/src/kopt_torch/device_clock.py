"""Work that a GPU begins when the host has queued it: pauses of the device, and its clock."""

from __future__ import annotations

import functools
from time import perf_counter  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

# Bound before a candidate exists, and of C: torch.cuda's own classes can be patched, these cannot.
_Event: Any = torch._C._CudaEventBase
_Stream: Any = torch._C._CudaStreamBase
_sleep: Any = getattr(torch._C, "_cuda_sleep", None)
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)
_stream_of: Any = getattr(torch._C, "_cuda_getCurrentStream", None)
PAUSE_KERNEL = "spin_kernel"
"""Part of the name of the kernel that is a pause."""


def behind_pause(
    steps: list[Callable[[], None]], first: int, launches: int, pause_ms: float
) -> tuple[float, float, bool]:
    """Return device time of the launches, host time for queueing them, both in ms, and ``held``.

    That is whether the pause outlasted the queueing. Where the queue is full the host waits for the
    pause to end: then its time says nothing of the host, though it may be a little less than the pause.
    """
    start, end = _Event(enable_timing=True), _Event(enable_timing=True)
    count, stream = len(steps), _current_stream()
    _synchronize()
    pause(pause_ms)
    begun = perf_counter()
    start.record(stream)
    for index in range(first, first + launches):
        steps[index % count]()
    end.record(stream)
    queued_ms = (perf_counter() - begun) * 1e3
    held = not start.query()
    _synchronize()
    return float(start.elapsed_time(end)), queued_ms, held


def pause(milliseconds: float) -> None:
    """Keep the device from the current stream's next work for a while; the host goes on."""
    _sleep(int(milliseconds * _cycles_per_ms()))


def _current_stream() -> Any:
    stream, device, kind = _stream_of(torch._C._cuda_getDevice())
    return _Stream(stream_id=stream, device_index=device, device_type=kind)


@functools.cache
def _cycles_per_ms() -> float:
    """Measure the clock that torch.cuda._sleep counts."""
    start, end, stream = _Event(enable_timing=True), _Event(enable_timing=True), _current_stream()
    cycles = 2_000_000
    _sleep(cycles)
    start.record(stream)
    _sleep(cycles)
    end.record(stream)
    _synchronize()
    return cycles / float(start.elapsed_time(end))
