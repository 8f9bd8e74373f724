from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.evaluator import Baseline, Opening
from kopt.model.candidate import Candidate, Knob
from kopt.model.device import Device
from kopt.model.evaluation import Build, Evaluation
from kopt.model.measurement import Interval, Measurement, PairedSamples, WorkloadMeasurement
from kopt.model.problem import (
    InputSpec,
    Problem,
    ReferenceSource,
    Signature,
    TensorInfo,
    WorkloadSignature,
)  # fmt: skip
from kopt.model.run import RunConfig
from kopt.model.verification import StageResult, Status, Verification
from kopt.runs.store import RunFolder

Make = Callable[..., Evaluation]


def _candidate(number: int) -> Candidate:
    source = f'// number {number}\nextern "C" void f() {{}}\n'
    return Candidate(
        language="cpp", source=source, entry="f", settings={"flags": ["-O3"]},
        knobs={"N": Knob(default=1, choices=(1, 2, 4))}, values={"N": 2}, strategy="test",
    )  # fmt: skip


def _measurement() -> Measurement:
    speedup = Interval(median=2.0, low=1.9, high=2.1)
    pair = PairedSamples(
        baseline="eager", launches=3, baseline_launches=1, samples_ms=(1.0, 1.1),
        baseline_samples_ms=(2.0, 2.2), speedup=speedup,
    )  # fmt: skip
    workload = WorkloadMeasurement(
        workload="default", weight=1.0, latency_ms=1.05, call_ms=1.06, bytes_moved=8, pairs=(pair,)
    )
    return Measurement(
        latency_ms=1.05, speedup={"eager": speedup}, workloads=(workload,), protocol="search",
        noise=0.01,
    )  # fmt: skip


@pytest.fixture
def candidate() -> Callable[[int], Candidate]:
    return _candidate


@pytest.fixture
def evaluation() -> Make:
    def make(number: int, *, correct: bool = True) -> Evaluation:
        if not correct:
            return Evaluation(
                candidate=_candidate(number), status=Status.COMPILE_ERROR, detail="error: 'x'\n"
            )
        verdict = Verification(
            verifier="verify", status=Status.CORRECT, error_ratio=0.5,
            stages=(StageResult(stage="values", outcome="pass"),),
        )  # fmt: skip
        return Evaluation(
            candidate=_candidate(number), status=Status.CORRECT, verifications=(verdict,),
            build=Build(backend="cpp", seconds=0.5, binary_id="b" * 16), seconds=0.75,
            measurement=_measurement(),
        )  # fmt: skip

    return make


@pytest.fixture
def problem() -> Problem:
    return Problem(
        name="RMS norm", format="native", inputs=(InputSpec(name="x", shape=(4, "n")),),
        reference=ReferenceSource(kind="function", source="def f(x): ...", entry="f"),
    )  # fmt: skip


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(
        backend="cpp", strategies=("starters",), search="greedy", verifiers=("verify",),
        options={"search.greedy": {"width": 2}}, device="cpu",
    )  # fmt: skip


@pytest.fixture
def opening(evaluation: Make) -> Opening:
    x = TensorInfo(name="x", dtype="float32", shape=(4, 4))
    traced = WorkloadSignature(arguments=(), outputs=(x,), compulsory_bytes=128)
    device = Device(
        kind="cpu", name="c", architecture="x86_64", units=2, memory_bytes=1, cache_bytes=1
    )
    baseline = Baseline(name="eager", candidate=_candidate(900), evaluation=evaluation(900))
    return Opening(
        device=device, signature=Signature(workloads={"default": traced}), baselines=(baseline,),
        fastest="eager", failed_baselines={"torch.compile": "no compiler"}, noise=0.02, copy_ms={"default": 0.5},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, problem: Problem, config: RunConfig) -> RunFolder:
    return RunFolder.create(tmp_path / ".kopt" / "runs", problem, config, {"backend.cpp": "k 1"})
