"""What a profiler saw and what a judge concludes."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from kopt.model.metrics import unit_of
from kopt.model.record import Record


class Metric(Record):
    """One figure; a metric that could not be read is absent, never zero."""

    name: str
    value: float
    unit: str = ""


def metrics_of(values: Mapping[str, float | None]) -> tuple[Metric, ...]:
    """Return metrics with their units (kopt.model.metrics), without those that are None."""
    return tuple(
        Metric(name=name, value=float(value), unit=unit_of(name))
        for name, value in values.items()
        if value is not None
    )


class KernelProfile(Record):
    """What one profiler measured of one kernel launch of a call."""

    name: str
    metrics: tuple[Metric, ...] = ()
    """By kopt's names (kopt.model.metrics.KERNEL_METRICS)."""
    raw: dict[str, float | str] = Field(default_factory=dict)
    """By the tool's own names, in its base units."""


class Profile(Record):
    """What one profiler measured of one candidate."""

    profiler: str
    candidate: str
    metrics: tuple[Metric, ...] = ()
    """Of the whole call (kopt.model.metrics.CALL_METRICS)."""
    kernels: tuple[KernelProfile, ...] = ()
    """In the order of their launches."""
    notes: tuple[str, ...] = ()
    """What could not be measured, why, and what to do about it."""


class Finding(Record):
    """One thing that limits a kernel."""

    bottleneck: str
    """As ``grid-starvation``."""
    kernel: str = ""
    """Which kernel of the call; empty where it is the call."""
    evidence: tuple[str, ...] = ()
    """Metrics with their values, as ``grid_blocks = 16 on 132 multiprocessors``."""
    explanation: str = ""
    """What it means and why it costs time, in two sentences."""
    gain: float | None = Field(default=None, ge=1)
    """Predicted factor on the call's speed where it is put right; None: cannot be told."""
    moves: tuple[str, ...] = ()
    """What to try, by the names of moves."""
    risk: str = ""
    source: str = ""
    """Where the rule is from."""


class Diagnosis(Record):
    """A bottleneck, its evidence and how much could be gained."""

    judge: str
    bottleneck: str
    evidence: tuple[str, ...] = ()
    headroom: float | None = Field(default=None, ge=1)
    """Factor by which the kernel could still get faster."""
    advice: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Everything that was found, what costs most first."""
    missing: tuple[str, ...] = ()
    """Metrics without which some rules could not be asked."""
