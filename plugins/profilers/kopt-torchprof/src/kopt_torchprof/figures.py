"""Figures of one call and of its kernels: medians over the traced calls."""

from __future__ import annotations

from math import prod
from statistics import median
from typing import TYPE_CHECKING

from kopt.model.diagnosis import KernelProfile, Metric, metrics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.probe import KernelRun, Timeline

    Calls = Sequence[tuple[KernelRun, ...]]


def kernel_profiles(calls: Calls) -> tuple[KernelProfile, ...]:
    """Return the kernels of a call in launch order; ``calls`` all launch the same ones."""
    durations = [median(run.duration_us for run in runs) for runs in zip(*calls, strict=True)]
    total = sum(durations)
    return tuple(
        _kernel(run, duration, 100 * duration / total if total else None)
        for run, duration in zip(calls[0], durations, strict=True)
    )


def _kernel(run: KernelRun, duration_us: float, share_percent: float | None) -> KernelProfile:
    values = {
        "duration_us": duration_us,
        "share_percent": share_percent,
        "grid_blocks": prod(run.grid) if run.grid else None,
        "block_threads": prod(run.block) if run.block else None,
        "registers_per_thread": run.registers,
        "shared_bytes": run.shared_bytes,
    }
    shapes = {"grid": run.grid, "block": run.block}
    raw: dict[str, float | str] = {
        name: " ".join(map(str, shape)) for name, shape in shapes.items() if shape
    }
    return KernelProfile(name=run.name, metrics=metrics_of(values), raw=raw)


def call_metrics(calls: Calls) -> tuple[Metric, ...]:
    """Return launches, and medians of kernel time, span and idle time within the span.

    Kernels that run side by side count once in the busy part of the span, and each in the kernel
    time, which may then be longer than the span. What is between two calls is of neither.
    """
    spans = [_span_us(call) for call in calls]
    idle = [span - _busy_us(call) for span, call in zip(spans, calls, strict=True)]
    values = {
        "kernel_launches": len(calls[0]),
        "kernels_us": median(sum(run.duration_us for run in call) for call in calls),
        "span_us": median(spans),
        "idle_us": max(0.0, median(idle)),
    }
    return metrics_of(values)


def mean_metrics(timeline: Timeline) -> tuple[Metric, ...]:
    """Return what can be said where single calls cannot be told apart: means per call."""
    total = sum(run.duration_us for run in timeline.kernels)
    values = {
        "kernel_launches": len(timeline.kernels) / timeline.calls,
        "kernels_us": total / timeline.calls,
    }
    return metrics_of(values)


def _span_us(call: Sequence[KernelRun]) -> float:
    first = min(run.start_us for run in call)
    return max(run.start_us + run.duration_us for run in call) - first


def _busy_us(call: Sequence[KernelRun]) -> float:
    """Return the time in which at least one kernel ran."""
    busy, until = 0.0, float("-inf")
    for run in sorted(call, key=lambda each: each.start_us):
        end = run.start_us + run.duration_us
        busy += max(0.0, end - max(until, run.start_us))
        until = max(until, end)
    return busy
