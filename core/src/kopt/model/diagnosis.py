"""What a profiler saw and what a judge concludes."""

from __future__ import annotations

from pydantic import Field

from kopt.model.record import Record


class Metric(Record):
    """One figure; a metric that could not be read is absent, never zero."""

    name: str
    value: float
    unit: str = ""


class Profile(Record):
    """What one profiler measured of one candidate."""

    profiler: str
    candidate: str
    metrics: tuple[Metric, ...] = ()


class Diagnosis(Record):
    """A bottleneck, its evidence and how much could be gained."""

    judge: str
    bottleneck: str
    evidence: tuple[str, ...] = ()
    headroom: float | None = Field(default=None, ge=1)
    """Factor by which the kernel could still get faster."""
    advice: tuple[str, ...] = ()
