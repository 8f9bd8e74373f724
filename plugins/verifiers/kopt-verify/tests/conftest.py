"""Trials of C++ and Python candidates in a process of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem
from kopt.model.verification import Verification
from kopt.testing.problems import vector_add
from kopt.testing.trials import Trials
from kopt_verify import Verify

LENGTH = 4096


@pytest.fixture(scope="session")
def open_trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Problem], Trials]]:
    """Return a function that opens a problem, once."""
    cache = tmp_path_factory.mktemp("builds")
    opened: dict[str, Trials] = {}

    def open_once(problem: Problem) -> Trials:
        if problem.id not in opened:
            opened[problem.id] = Trials(problem, cache, run_seconds=20.0)
        return opened[problem.id]

    yield open_once
    for each in opened.values():
        each.close()


@pytest.fixture(scope="session")
def trials(open_trials: Callable[[Problem], Trials]) -> Trials:
    """Trials for the sum of two vectors."""
    return open_trials(vector_add(LENGTH))


@pytest.fixture
def judge(trials: Trials) -> Callable[..., Verification]:
    """Return a function that has a new verifier judge a source."""

    def verdict(source: str, language: str = "cpp", **how: object) -> Verification:
        candidate = parse_kernel(source, language)
        found = Verify(Verify.Options()).kopt_verify(trials.of(candidate, **how))
        assert found is not None
        return found

    return verdict
