"""Suites, runs and rows that tests make up; also imported by the processes that a test kills."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kopt.errors import WorkerError
from kopt.evaluator import Baseline, Opening
from kopt.model.budget import Budget, Spend
from kopt.model.candidate import Candidate
from kopt.model.device import Device, Peaks
from kopt.model.evaluation import Evaluation
from kopt.model.measurement import Interval, Measurement, PairedSamples, WorkloadMeasurement
from kopt.model.problem import Problem
from kopt.model.run import Run, RunConfig, RunStatus
from kopt.model.verification import StageResult, Status, Verification
from kopt.reporter import Reporter, Silent
from kopt.runs.events import Finished, Opened
from kopt.runs.store import RunFolder
from kopt.suites.problem import Suite, SuiteProblem
from kopt.suites.records import Planned, Row, SuiteRecord, SuiteSettings
from kopt.testing.problems import vector_add, vector_add_signature
from kopt.testing.records import cpu

SETTINGS = SuiteSettings(seconds=60.0)
CONFIG = RunConfig(
    backend="cpp", strategies=("starters",), search="greedy", verifiers=("verify",), device="cpu"
)
BASELINES = {"eager": 2.0, "torch.compile": 1.0, "vendor": 4.0}


def interval(median: float, spread: float = 0.02) -> Interval:
    return Interval(median=median, low=median * (1 - spread), high=median * (1 + spread))


def suite(count: int = 3, name: str = "made-up") -> Suite:
    """Problems of ``count`` sizes, numbered from 1."""
    return Suite(name=name, dtype="float32", problems=tuple(map(problem, range(1, count + 1))))


def problem(number: int) -> SuiteProblem:
    return SuiteProblem(
        id=str(number), name=f"add{number}", load=functools.partial(vector_add, 1024 * number)
    )


def device(**peaks: float) -> Device:
    return cpu().model_copy(update={"peaks": Peaks(**peaks) if peaks else None})


def _evaluation(candidate: Candidate, measurement: Measurement) -> Evaluation:
    stage = StageResult(stage="accuracy", outcome="pass")
    verified = Verification(verifier="verify", status=Status.CORRECT, stages=(stage,))
    return Evaluation(
        candidate=candidate, status=Status.CORRECT, verifications=(verified,),
        measurement=measurement,
    )  # fmt: skip


def measurement(
    ms: float, beside: Mapping[str, float], speedup: Mapping[str, Interval] | None = None
) -> Measurement:
    """What a subject of ``ms`` measures beside baselines of these times."""
    over = dict(speedup or {name: interval(other / ms) for name, other in beside.items()})
    pairs = tuple(
        PairedSamples(
            baseline=name, launches=1, baseline_launches=1, samples_ms=(ms,) * 3,
            baseline_samples_ms=(other,) * 3, speedup=over[name],
        )
        for name, other in beside.items()
    )  # fmt: skip
    one = WorkloadMeasurement(
        workload="default", weight=1.0, latency_ms=ms, call_ms=ms, bytes_moved=1 << 20, pairs=pairs
    )
    return Measurement(
        latency_ms=ms, speedup=over, workloads=(one,), protocol="confirm", noise=0.01
    )


def opening(baselines: Mapping[str, float] = BASELINES, peaks: Peaks | None = None) -> Opening:
    first = next(iter(baselines))
    evaluated = [
        (name, Candidate(language="torch", source=f"# {name}", entry="f", idea=name), ms)
        for name, ms in baselines.items()
    ]
    return Opening(
        device=cpu().model_copy(update={"peaks": peaks}), signature=vector_add_signature(),
        baselines=tuple(
            Baseline(
                name=name, candidate=candidate,
                evaluation=_evaluation(candidate, measurement(ms, {first: baselines[first]})),
            )
            for name, candidate, ms in evaluated
        ),
        fastest=min(baselines, key=lambda name: baselines[name]), noise=0.01,
        copy_ms={"default": 0.1},
    )  # fmt: skip


def best(ms: float, beside: Mapping[str, float], **more: Any) -> Evaluation:
    candidate = Candidate(
        language="cpp", source="// a kernel\n", entry="f", strategy="starters", idea="one pass"
    )
    return _evaluation(candidate, measurement(ms, beside, **more))


def run(
    status: RunStatus,
    kernel_ms: float | None = None,
    *,
    baselines: Mapping[str, float] = BASELINES,
    folder: Path = Path("run"),
    identity: str = "a-run",
    of: Problem | None = None,
    peaks: Peaks | None = None,
    **more: Any,
) -> Run:
    """A run that has ended; the kernel was timed beside baselines that took a tenth longer."""
    opened = opening(baselines, peaks) if baselines else None
    beside = {name: ms * 1.1 for name, ms in baselines.items()}
    return Run(
        id=identity, folder=folder, status=status, reason="why", problem=of or vector_add(),
        config=CONFIG, device=opened.device if opened else None,
        baselines={b.name: b.measurement for b in opened.baselines} if opened else {},
        best=best(kernel_ms, beside, **more) if kernel_ms else None,
        trials={"correct": 2, "wrong": 1}, spend=Spend(seconds=12.0, trials=3),
    )  # fmt: skip


def ended(
    of: Problem, runs: Path, status: RunStatus = "improved", *, into: RunFolder | None = None
) -> Run:
    """Make a run's folder as a session leaves it, and return the run."""
    folder = into or RunFolder.create(runs, of, CONFIG)
    found = run(
        status, 0.5 if status == "improved" else None, folder=folder.path, identity=folder.id, of=of
    )
    with folder.writing() as journal:
        journal.append(Opened(opening=opening()), Spend())
        folder.write_result(found)
        journal.append(Finished(status=status, reason="why"), Spend(seconds=1.0))
    return found


def begun(of: Problem, runs: Path) -> RunFolder:
    """Make the folder of a run that was killed after it had been opened."""
    folder = RunFolder.create(runs, of, CONFIG)
    with folder.writing() as journal:
        journal.append(Opened(opening=opening()), Spend(seconds=7.0))
    return folder


class Solver:
    """Solves at once; ``problems`` by number may raise, be interrupted, or take seconds."""

    def __init__(self, **odd: Any) -> None:
        self.odd = {int(name.removeprefix("p")): what for name, what in odd.items()}
        self.solved: list[int] = []
        self.left: list[RunFolder | None] = []

    def __call__(
        self,
        problem: Problem,
        settings: SuiteSettings,
        runs: Path,
        left: RunFolder | None,
        reporter: Reporter,
    ) -> Run:
        shape = problem.inputs[0].shape
        assert shape is not None
        number = int(shape[0]) // 1024
        what = self.odd.get(number)
        self.solved.append(number)
        self.left.append(left)
        if isinstance(what, BaseException):
            raise what
        if isinstance(what, float):
            begun(problem, runs)
            time.sleep(what)
        if what == "lost":
            begun(problem, runs)
            raise WorkerError("the judge died")
        return ended(problem, runs, what or "improved", into=left)


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str, float | None]] = []
        self.rows: list[Row] = []

    @contextmanager
    def begins(
        self, problem: SuiteProblem, place: str, budget: Budget, spend: Spend | None
    ) -> Iterator[Reporter]:
        self.begun.append((place, problem.name, spend.seconds if spend else None))
        yield Silent()

    def ended(self, row: Row) -> None:
        self.rows.append(row)


def row(number: int, verdict: str = "improved", seconds: float = 10.0, **over: float) -> Row:
    """A row with speedups by name, where ``compile`` means torch.compile's."""
    speedup = {"torch.compile" if k == "compile" else k: interval(v) for k, v in over.items()}
    return Row.model_validate({
        "id": str(number), "name": f"add{number}", "verdict": verdict, "status": "x",
        "seconds": seconds, "speedup": {k: v.to_json() for k, v in speedup.items()},
        "problem_id": f"hash{number}", "kopt_ms": 1.0 / over["best"] if "best" in over else None,
    })  # fmt: skip


def record(rows: Sequence[Row], planned: int | None = None, **more: Any) -> SuiteRecord:
    numbers = range(1, 1 + (planned or len(rows)))
    return SuiteRecord.model_validate({
        "suite": "made-up", "dtype": "float32", "kopt": "0.2.0", "created": 1.0, "runs": "runs",
        "device": cpu(), "settings": SETTINGS, "rows": tuple(rows),
        "planned": tuple(Planned(id=str(n), name=f"add{n}") for n in numbers), **more,
    })  # fmt: skip
