"""Runs as the command line shows them: real records in a real run folder."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kopt.cli.app import main
from kopt.evaluator import Baseline, Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.run import Run, RunConfig, RunStatus
from kopt.runs.events import Evaluated, Finished, Opened, Proposed
from kopt.runs.store import RunFolder
from kopt.testing.problems import vector_add, vector_add_signature
from kopt.testing.records import cpu, failed, measured


def candidate(number: int, idea: str = "") -> Candidate:
    return Candidate(
        language="cpp", source=f"// kernel {number}\n", entry="f", strategy="starters", idea=idea
    )


def opening(*failures: str) -> Opening:
    baseline = Baseline(
        name="eager", candidate=candidate(900), evaluation=measured(candidate(900), 1.0)
    )
    return Opening(
        device=cpu(), signature=vector_add_signature(), baselines=(baseline,), fastest="eager",
        failed_baselines=dict.fromkeys(failures, "no [compiler]"), noise=0.02,
        copy_ms={"default": 0.5},
    )  # fmt: skip


@pytest.fixture
def run_of() -> Callable[..., Run]:
    return _run_of


def _run_of(status: RunStatus, speedup: float | None = None, *, reason: str = "why") -> Run:
    best = measured(candidate(1, "one [pass]"), speedup) if speedup else None
    opened = opening("torch.compile")
    return Run(
        id="20260101-000000-vector_add-0000", folder=Path("run"), status=status, reason=reason,
        problem=vector_add(), config=config(), device=opened.device,
        baselines={b.name: b.measurement for b in opened.baselines},
        failed_baselines=opened.failed_baselines, copy_ms=0.5, best=best,
        source_path=Path("run/sources/[1].cpp") if best else None,
        trials={"correct": 2, "wrong": 1}, spend=Spend(seconds=12.3, trials=3),
    )  # fmt: skip


def config() -> RunConfig:
    return RunConfig(
        backend="cpp",
        strategies=("starters",),
        search="greedy",
        verifiers=("verify",),
        device="cpu",
    )


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the runs, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".kopt" / "runs"


@pytest.fixture
def recorded(runs: Path) -> Callable[[RunStatus | None], RunFolder]:
    return functools.partial(_record, runs)


def _record(root: Path, finished: RunStatus | None) -> RunFolder:
    """Make a run with one good and one bad candidate; None: it was killed."""
    folder = RunFolder.create(root, vector_add(), config(), {"backend.cpp": "kopt-cpp 1"})
    good, bad = candidate(1, "one [pass]"), candidate(2)
    with folder.writing() as journal:
        journal.append(Opened(opening=opening()), Spend())
        journal.append(Proposed(round_number=0, parents=(), candidates=(good, bad)), Spend())
        for number, evaluation in enumerate((measured(good, 2.0), failed(bad)), 1):
            journal.append(Evaluated(evaluation=evaluation), Spend(seconds=number, trials=number))
        if finished is not None:
            journal.append(Finished(status=finished, reason="why"), Spend(seconds=3, trials=2))
            run = _run_of(finished, 2.0 if finished == "improved" else None)
            folder.write_result(run.model_copy(update={"id": folder.id, "folder": folder.path}))
    return folder


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Kopt:
    """The command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)


@pytest.fixture
def kopt(capsys: pytest.CaptureFixture[str]) -> Kopt:
    return Kopt(capsys)
