"""A problem and plugins without a framework, for real judge and candidate processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kopt.model.candidate import Candidate
from kopt.model.problem import Problem
from kopt.model.reference import InputSet
from kopt.testing.plain import PlainReference
from kopt.testing.plain_problem import double
from kopt.testing.processes import ending, eventually, marked
from kopt.worker.client import LocalEvaluator
from kopt.worker.pool import ProcessRecipe
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import JudgeSettings
from kopt.worker.trial import ProcessTrial

BACKEND = ("backend", "plain-kopt:plain", dict[str, object]())
VERIFIER = ("verifier", "plain-kopt:plain", dict[str, object]())


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """What every process of a test has in its environment."""
    return str(tmp_path)


@pytest.fixture(autouse=True)
def plugins(distributions: Any, monkeypatch: pytest.MonkeyPatch, marker: str) -> Iterator[None]:
    """The plain plugins, installed for this process and those below it; none is left behind."""
    distributions.add(
        "plain-kopt",
        plugins={
            "backend.plain": "kopt.testing.plain:PlainBackend",
            "verifier.plain": "kopt.testing.plain_verifier:PlainVerifier",
        },
    )
    monkeypatch.setenv("PYTHONPATH", str(distributions.site))
    temporary = distributions.site.parent / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    gone = eventually(lambda: not marked(marker))
    left = [(p.pid, p.cmdline()) for p in marked(marker)]
    for process in marked(marker):
        process.kill()
    assert gone, f"processes were left behind: {left}"


@pytest.fixture
def started() -> Iterator[Callable[[], set[int]]]:
    """The processes of a test, which end with it."""
    with ending() as started:
        yield started


@pytest.fixture
def problem() -> Problem:
    return double()


@pytest.fixture
def settings(problem: Problem, tmp_path: Path) -> JudgeSettings:
    return JudgeSettings(
        problem=problem, device="cpu", judge_plugins=(BACKEND, VERIFIER),
        candidate_plugins=(BACKEND,), cache=tmp_path / "cache", locks=tmp_path / "locks",
        build_workers=2, build_seconds=10.0, run_seconds=2.0, seed=0, confine=False,  # they leave notes
    )  # fmt: skip


@pytest.fixture
def evaluator(settings: JudgeSettings) -> Iterator[LocalEvaluator]:
    """An evaluator that has opened the problem."""
    made = LocalEvaluator(settings)
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture
def reference(problem: Problem) -> PlainReference:
    return PlainReference(problem)


@pytest.fixture
def recipe(problem: Problem, reference: PlainReference, tmp_path: Path) -> ProcessRecipe:
    opening = {
        "problem": problem.to_json(), "device": reference.device.to_json(),
        "architecture": "native", "argument_names": ["x"], "cache": str(tmp_path / "cache"),
    }  # fmt: skip
    return ProcessRecipe(tmp_path / "cache", 1 << 30, [BACKEND], opening)


@pytest.fixture
def process(recipe: ProcessRecipe) -> Iterator[CandidateProcess]:
    """A candidate process that has loaded its plugins."""
    started = recipe.ready(recipe.start())
    yield started
    started.kill()


@pytest.fixture
def inputs(reference: PlainReference) -> InputSet:
    return reference.inputs("default", 1)


@pytest.fixture
def trial_of(
    process: CandidateProcess, reference: PlainReference
) -> Callable[[Candidate], ProcessTrial]:
    """Build a candidate in ``process``."""

    def build(candidate: Candidate) -> ProcessTrial:
        reply = process.order("build", 5.0, candidate=candidate.to_json(), key=candidate.id)
        return ProcessTrial(
            process, reference, candidate, reply["build"], seed=1, depth="search", run_seconds=2.0,
            twin=lambda: nullcontext(build(candidate)),
        )  # fmt: skip

    return build
