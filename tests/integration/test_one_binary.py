"""Candidates with the same binary and the same launches are judged once, and rank once."""

from __future__ import annotations

import pytest

from kopt import single
from kopt.config import Settings
from kopt.model.history import History
from kopt.model.kernel_file import load_kernel
from kopt.model.verification import Status
from kopt.optimize import load_problem
from kopt.selftest.cases import FIXTURES

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_a_comment_makes_no_new_candidate_and_a_change_does():
    problem = load_problem(FIXTURES / "problems" / "norm")
    honest = load_kernel(FIXTURES / "kernels" / "honest.cpp")

    def edited(old, new):
        source = honest.source.replace(old, new, 1)
        assert source != honest.source
        return honest.model_copy(update={"source": source})

    trials = [
        honest,
        edited("extern", "// the same in more words\nextern"),
        edited("sum / cols", "2 * sum / cols"),
    ]
    settings = Settings(device="cpu", options={"backend.torch": {"compile": False}})
    history = History(baseline="eager")
    with single.evaluator_for(problem, trials, "cpu", settings) as evaluator:
        evaluator.open()
        for trial in trials:
            (evaluation,) = evaluator.evaluate([trial])
            history.add(evaluation)
        again = next(iter(evaluator.evaluate([honest])))
    first, same, other = history
    assert (first.status, first.same_as) == (Status.CORRECT, "")
    assert (same.status, same.same_as) == (Status.CORRECT, first.id)
    assert same.measurement == first.measurement
    assert same.candidate == trials[1]
    assert (other.status, other.same_as) == (Status.WRONG, "")
    assert history.ranked() == [first]
    assert again.same_as == ""  # it is the first itself, not a copy of itself
