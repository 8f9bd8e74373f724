"""The pool: processes are reused while healthy, and only then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from kopt.errors import CandidateError, WorkerError
from kopt.model.candidate import Candidate
from kopt.model.verification import Status
from kopt.testing.plain_problem import candidate as plain
from kopt.testing.plain_problem import right
from kopt.testing.processes import eventually
from kopt.worker.pool import ProcessPool, ProcessRecipe
from kopt.worker.process import CandidateProcess

Started = Callable[[], set[int]]


@pytest.fixture
def pool(recipe: ProcessRecipe, started: Started) -> ProcessPool:
    return ProcessPool(recipe, 1)


def build(process: CandidateProcess, candidate: Candidate) -> None:
    process.order("build", 2.0, candidate=candidate.to_json(), key=candidate.id)


def test_a_healthy_process_is_reused(pool: ProcessPool) -> None:
    with pool.process() as first:
        build(first, right(1))
    with pool.process() as second:
        build(second, right(2))
    assert first is second
    assert second.uses == 2


def test_a_fresh_one_was_never_used_and_is_never_used_again(pool: ProcessPool) -> None:
    with pool.process() as used:
        build(used, right(1))
    with pool.process(fresh=True) as fresh:
        assert (fresh.uses, fresh.pid != used.pid) == (0, True)
    assert not fresh.alive
    with pool.process() as next_one:
        assert next_one.pid == used.pid


@pytest.mark.parametrize(
    ("source", "reused"),
    [
        (plain("pass", before="import os; os.abort()"), False),
        (plain("pass", before="raise SystemExit(0)"), False),
        (plain("pass", before="this is no Python"), True),
        (right(1), True),
        (plain("pass", before="import os, time\nif not os.fork(): time.sleep(600)"), False),
        (plain("pass", before="import os, time\nif not os.fork(): os._exit(0)"), False),
    ],
    ids=["aborts", "raises", "syntax", "right", "child", "zombie"],
)
def test_only_after_a_clean_end(pool: ProcessPool, source: Candidate, reused: bool) -> None:
    with pool.process() as first:
        try:
            build(first, source)
        except CandidateError as error:
            assert error.status is not Status.CORRECT
    with pool.process() as second:
        build(second, right(2))
    assert (first.pid == second.pid) is reused


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.CORRECT])
def test_a_verdict_against_it_taints(pool: ProcessPool, status: Status) -> None:
    """What wrote where it should not, or came out wrong, may have spoilt the process."""
    with pool.process() as first:
        first.judged(status)
    sound = {Status.COMPILE_ERROR, Status.PARSE_ERROR, Status.UNSUPPORTED}
    assert first.alive is (status in sound)


def test_one_that_died_at_rest_is_not_lent(pool: ProcessPool) -> None:
    with pool.process() as first:
        build(first, right(1))
    psutil.Process(first.pid).kill()
    assert eventually(lambda: not first.alive)
    with pool.process() as second:
        build(second, right(2))
    assert second is not first


def test_no_more_than_its_size_at_a_time(pool: ProcessPool) -> None:
    got = threading.Event()

    def second() -> None:
        with pool.process():
            got.set()

    thread = threading.Thread(target=second)
    with pool.process():
        thread.start()
        assert not got.wait(0.5)
    assert got.wait(20)
    thread.join()


def test_the_spare_is_started_ahead(pool: ProcessPool, started: Started) -> None:
    pool.prestart()
    (ahead,) = started()
    with pool.process() as process:
        assert process.pid == ahead


def test_plugins_that_do_not_load_are_no_candidates_fault(
    recipe: ProcessRecipe, started: Started
) -> None:
    broken = replace(recipe, plugins=[("backend", "nobody:nothing", {})])
    before = set(psutil.Process().children())  # other tests keep judges of their own
    with pytest.raises(WorkerError, match="nobody"), ProcessPool(broken, 1).process():
        pass
    assert not started()
    assert not set(psutil.Process().children()) - before
