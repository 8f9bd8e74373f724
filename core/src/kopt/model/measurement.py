"""Times, with every raw sample and the interval that they support."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from kopt.model.record import Record


class Interval(Record):
    """A median with a 95 % bootstrap confidence interval."""

    median: float
    low: float
    high: float


class PairedSamples(Record):
    """Blocks of a subject and a baseline, interleaved: entry i of both ran side by side."""

    baseline: str
    launches: int = Field(gt=0)
    """Calls of the subject per block."""
    baseline_launches: int = Field(gt=0)
    samples_ms: tuple[float, ...]
    """Time per call of the subject, one value a block."""
    baseline_samples_ms: tuple[float, ...]
    speedup: Interval
    """Baseline time over subject time."""
    baseline_warm_ms: float | None = None
    """As ``warm_ms`` of the subject."""

    @model_validator(mode="after")
    def _paired(self) -> PairedSamples:
        if len(self.samples_ms) != len(self.baseline_samples_ms) or not self.samples_ms:
            raise ValueError("paired samples need the same number of blocks, at least one")
        return self


class WorkloadMeasurement(Record):
    """One workload's times."""

    workload: str
    weight: float
    latency_ms: float = Field(gt=0)
    """Median time per call: device time on a GPU, wall clock on a CPU."""
    call_ms: float = Field(gt=0)
    """Median wall-clock time per call, launch overhead included."""
    bytes_moved: int
    """Compulsory traffic."""
    pairs: tuple[PairedSamples, ...]
    warm_ms: float | None = None
    """Median time per call on one input set, used just before; None where it was not timed."""
    slope_ms: float | None = None
    """What one more call costs by the judge's clock; None where it was not timed."""

    @property
    def bandwidth_gb_s(self) -> float:
        """Compulsory bytes over latency."""
        return self.bytes_moved / self.latency_ms / 1e6


class Measurement(Record):
    """One candidate's times over all measured workloads."""

    latency_ms: float = Field(gt=0)
    """Weighted mean over the workloads."""
    speedup: dict[str, Interval]
    """Against each baseline: weighted geometric mean over the workloads."""
    workloads: tuple[WorkloadMeasurement, ...]
    protocol: str
    """``search`` or ``confirm``: how many blocks, and whether the process was fresh."""
    setup_ms: float | None = None
    """Wall clock of binding and the first call in that process: compiling, tuning, packing."""
    noise: float = Field(ge=0)
    """Half-width of this session's A/A interval: smaller differences mean nothing."""

    def beats(self, baseline: str) -> bool:
        """Whether the interval against ``baseline`` lies above 1 by more than the noise."""
        return self.speedup[baseline].low > 1.0 + self.noise


def fastest_of(measured: Mapping[str, Measurement]) -> str:
    """Return the name of the fastest baseline; empty where there is none.

    By the ratios of pairs where all were timed beside the same one: a device's speed drifts from
    one block to the next, and times drift with it, by more than what two baselines may differ in.
    """
    beside = {next(iter(each.speedup), "") for each in measured.values()}
    if len(beside) == 1 and (common := beside.pop()) in measured:
        ratios = {
            name: 1.0 if name == common else each.speedup[common].median
            for name, each in measured.items()
        }
    else:
        ratios = {name: 1.0 / each.latency_ms for name, each in measured.items()}
    return max(sorted(measured), key=lambda name: ratios[name], default="")
