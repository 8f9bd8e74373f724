"""The kernels of some calls, as CUPTI records them through PyTorch's profiler: no root is needed."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from time import perf_counter  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

from kopt.model.probe import KernelRun, Timeline
from kopt_torch.device_clock import PAUSE_KERNEL, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NAMES = {"kernel": None, "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
"""Categories of device work in a trace, with the name that stands for all of one."""
_LEAST_PAUSE_MS = 20.0
_MOST_PAUSE_MS = 500.0
_TRACED_OVER_PLAIN = 3.0
"""How much longer the host is taken to need for a launch that is traced."""


def trace(launch: Callable[[], None], synchronize: Callable[[], None], calls: int) -> Timeline:
    """Trace ``calls`` warm calls made back to back, with one synchronisation at their end.

    The device pauses until the host has queued them, as far as its queue holds them: tracing slows
    the host, and a kernel should not be seen waiting for that. Where a call waits for the device
    itself, or starts more kernels than the queue holds, it does wait; so gaps between kernels are
    upper bounds. Copies and fills by the device are called ``memcpy`` and ``memset``. Without
    kernels where CUPTI recorded none, as where another tool has it.

    A process's first trace takes seconds, and its later launches may be slower.
    """
    pause(0.1)  # its clock is measured once, and not in the trace
    launch()
    synchronize()
    begun = perf_counter()
    launch()
    queue_ms = (perf_counter() - begun) * 1e3
    synchronize()
    pause_ms = min(_MOST_PAUSE_MS, _LEAST_PAUSE_MS + _TRACED_OVER_PLAIN * queue_ms * calls)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that events of other profiles are not kept
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            pause(pause_ms)
            for _ in range(calls):
                launch()
            synchronize()
    return Timeline(calls=calls, kernels=kernel_runs(exported(profiler)))


def exported(profiler: Any) -> list[dict[str, Any]]:
    """Return a trace's events in Chrome's form, which has grids and blocks in every version."""
    with tempfile.TemporaryDirectory(prefix="kopt-trace-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_text(encoding="utf-8", errors="replace")
    events: list[dict[str, Any]] = json.loads(text, strict=False)["traceEvents"]
    return events


def kernel_runs(events: Iterable[dict[str, Any]]) -> tuple[KernelRun, ...]:
    """Return the device's work among Chrome trace events (times in us), without the first pause.

    Starts are counted from the first of them.
    """
    work = sorted((e for e in events if e.get("cat") in _NAMES), key=lambda event: event["ts"])
    pauses = (event for event in work if PAUSE_KERNEL in event["name"])
    first_pause = next(pauses, None)
    work = [event for event in work if event is not first_pause]
    return tuple(_run(event, work[0]["ts"]) for event in work)


def _run(event: dict[str, Any], origin: float) -> KernelRun:
    told = event.get("args", {})
    return KernelRun(
        name=_NAMES[event["cat"]] or event["name"],
        start_us=round(event["ts"] - origin, 3), duration_us=event["dur"],
        grid=_extents(told.get("grid")), block=_extents(told.get("block")),
        registers=told.get("registers per thread"), shared_bytes=told.get("shared memory"),
    )  # fmt: skip


def _extents(told: list[int] | None) -> tuple[int, int, int] | None:
    return None if told is None else (told[0], told[1], told[2])
