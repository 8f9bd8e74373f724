"""Records as a run makes them, for tests of plugins that read them: devices and evaluations."""

from __future__ import annotations

from collections.abc import Sequence

from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Build, Evaluation
from kopt.model.history import History
from kopt.model.measurement import Interval, Measurement, PairedSamples, WorkloadMeasurement
from kopt.model.verification import StageResult, Status, Verification

BASELINE = "eager"
"""The baseline that the evaluations made here are measured against."""
_BASELINE_MS = 1.0


def cpu() -> Device:
    """A small CPU."""
    return Device(
        kind="cpu", name="test cpu", architecture="x86_64", units=2, memory_bytes=8 << 30,
        cache_bytes=32 << 20, copy_bandwidth_gb_s=10.0,
    )  # fmt: skip


def gpu() -> Device:
    """A large GPU."""
    return Device(
        kind="cuda", name="test gpu", architecture="sm_90", units=132, memory_bytes=80 << 30,
        cache_bytes=50 << 20, uuid="test", copy_bandwidth_gb_s=3000.0,
    )  # fmt: skip


def measured(candidate: Candidate, speedup: float, *, workload: str = "default") -> Evaluation:
    """Return the evaluation of a correct candidate that is ``speedup`` times the baseline."""
    latency = _BASELINE_MS / speedup
    interval = Interval(median=speedup, low=speedup * 0.99, high=speedup * 1.01)
    pair = PairedSamples(
        baseline=BASELINE, launches=1, baseline_launches=1, samples_ms=(latency,) * 3,
        baseline_samples_ms=(_BASELINE_MS,) * 3, speedup=interval,
    )  # fmt: skip
    one = WorkloadMeasurement(
        workload=workload, weight=1.0, latency_ms=latency, call_ms=latency, bytes_moved=1 << 20,
        pairs=(pair,),
    )  # fmt: skip
    stage = StageResult(stage="accuracy", outcome="pass")
    return Evaluation(
        candidate=candidate, status=Status.CORRECT, build=_build(candidate),
        verifications=(Verification(verifier="test", status=Status.CORRECT, stages=(stage,)),),
        measurement=Measurement(
            latency_ms=latency, speedup={BASELINE: interval}, workloads=(one,), protocol="search",
            noise=0.01,
        ),
    )  # fmt: skip


def failed(candidate: Candidate, status: Status = Status.WRONG) -> Evaluation:
    """Return the evaluation of a candidate that ended with ``status``, which is a failure."""
    build = None if status in (Status.COMPILE_ERROR, Status.PARSE_ERROR) else _build(candidate)
    return Evaluation(candidate=candidate, status=status, detail=f"test: {status}", build=build)


def history(evaluations: Sequence[Evaluation] = ()) -> History:
    """Return a history measured against ``BASELINE``."""
    return History(evaluations, baseline=BASELINE)


def _build(candidate: Candidate) -> Build:
    return Build(backend=candidate.language, binary_id=candidate.id, seconds=0.1)
