from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import kopt
from kopt.model.verification import StageResult
from kopt_search import Beam, Greedy

BLOCK = kopt.Knob(default=1, choices=tuple(range(1, 9)))


def evaluation(source: str, block: int, speedup: float | None) -> kopt.Evaluation:
    """An evaluation as a run records it: measured where ``speedup`` is given, wrong where None."""
    candidate = kopt.Candidate(
        language="cpp", source=source, entry="f", knobs={"BLOCK": BLOCK}, values={"BLOCK": block}
    )
    if speedup is None:
        return kopt.Evaluation(candidate=candidate, status=kopt.Status.WRONG, detail="off by 3")
    interval = kopt.Interval(median=speedup, low=speedup, high=speedup)
    return kopt.Evaluation(
        candidate=candidate,
        status=kopt.Status.CORRECT,
        verifications=(
            kopt.Verification(
                verifier="v",
                status=kopt.Status.CORRECT,
                stages=(StageResult(stage="smoke", outcome="pass"),),
            ),
        ),
        measurement=kopt.Measurement(
            latency_ms=1 / speedup, speedup={"eager": interval}, workloads=(), protocol="search",
            noise=0.01,
        ),
    )  # fmt: skip


cached = cache(evaluation)
rows = st.lists(
    st.builds(
        cached, st.sampled_from("abcdef"), st.integers(1, 8),
        st.none() | st.sampled_from([0.5, 1.0, 1.001, 2.0, 4.0]),
    ),
    max_size=30,
)  # fmt: skip


def history_of(evaluations: list[kopt.Evaluation]) -> kopt.History:
    return kopt.History(evaluations, baseline="eager")


@given(rows, st.integers(1, 5))
def test_beam_takes_the_best_of_distinct_structures(evaluations, width):
    history = history_of(evaluations)
    chosen = Beam(Beam.Options(width=width)).kopt_select(history, 1)
    structures = [e.candidate.structure for e in chosen]
    measured = {e.candidate.structure for e in history if e.measured}
    assert len(set(structures)) == len(structures) == min(width, len(measured))
    speeds = [history.speedup(e) for e in chosen]
    assert speeds == sorted(speeds, reverse=True)
    for parent in chosen:
        assert history.speedup(parent) == max(
            map(history.speedup, history.of_structure(parent.candidate))
        )
    left_out = [history.speedup(e) for e in history if e.candidate.structure not in structures]
    assert not chosen or max(left_out, default=0.0) <= speeds[-1]


@given(rows, st.randoms(use_true_random=False))
def test_selection_does_not_depend_on_the_order_of_equals(evaluations, random):
    unique = list({e.id: e for e in evaluations}.values())
    shuffled = random.sample(unique, len(unique))
    for policy in (Beam(), Greedy()):
        expected = [e.id for e in policy.kopt_select(history_of(unique), 1)]
        assert [e.id for e in policy.kopt_select(history_of(shuffled), 7)] == expected


@given(rows)
def test_greedy_is_a_beam_of_one(evaluations):
    history = history_of(evaluations)
    one = Beam(Beam.Options(width=1))
    assert Greedy().kopt_select(history, 1) == one.kopt_select(history, 1)


def test_equal_speeds_come_in_the_order_of_their_ids():
    equal = [evaluation(source, 1, 2.0) for source in "abc"]
    chosen = Beam().kopt_select(history_of(equal), 1)
    assert [e.id for e in chosen] == sorted(e.id for e in equal)


def test_nothing_measured_selects_nothing():
    history = history_of([evaluation("a", 1, None), evaluation("b", 1, None)])
    assert list(Beam().kopt_select(history, 1)) == []
    assert list(Greedy().kopt_select(history, 1)) == []


@pytest.mark.parametrize("options", [{"width": 0}, {"width": -1}, {"patience": 0}, {"widht": 3}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ValidationError):
        Beam.Options(**options)


@pytest.mark.parametrize("policy", [Beam, Greedy])
def test_patience_is_off_unless_asked_for(policy):
    history = history_of([evaluation("a", 1, 2.0), *(evaluation(s, 1, None) for s in "bcdefgh")])
    assert policy().kopt_stop(history) is None
    reason = policy(policy.Options(patience=7)).kopt_stop(history)
    assert reason is not None
    assert "7 evaluations" in reason
    assert policy(policy.Options(patience=8)).kopt_stop(history) is None


def test_small_steps_count_once_they_add_up_to_half_a_percent():
    stop = Beam(Beam.Options(patience=2)).kopt_stop
    first = evaluation("a", 1, 2.0)
    creeping = [evaluation("a", 2, 2.008), evaluation("a", 3, 2.0099)]
    assert stop(history_of([first, *creeping])) is not None
    assert stop(history_of([first, creeping[0], evaluation("a", 4, 2.011)])) is None


@pytest.mark.parametrize("policy", [Beam, Greedy])
@pytest.mark.parametrize(
    ("limit", "speedups", "words"),
    [
        (1.005, [], "eager takes 1.00 times what a plain copy"),
        (1.005, [0.9], "eager takes 1.00 times"),
        (2.0, [1.2, 1.99], "the fastest kernel takes 1.01 times"),
        (2.0, [2.5], "the fastest kernel takes 0.80 times"),
        (2.0, [1.2, 1.9], None),
        (1.02, [], None),
        (None, [5.0], None),
    ],
)
def test_a_search_ends_where_a_copy_is_no_faster(policy, limit, speedups, words):
    found = [evaluation(str(n), 1, speedup) for n, speedup in enumerate(speedups)]
    history = kopt.History(found, baseline="eager")
    history.copy_speedup = limit
    reason = policy(policy.Options()).kopt_stop(history)
    assert (words is None and reason is None) or words in reason
    assert policy(policy.Options(times_copy=None)).kopt_stop(history) is None
    if words:
        assert reason.startswith("search: nothing to gain: ")


def test_patience_runs_out_where_nothing_is_ever_correct():
    reason = Greedy(Greedy.Options(patience=2)).kopt_stop(
        history_of([evaluation("a", 1, None), evaluation("b", 1, None)])
    )
    assert reason is not None
    assert "none of the 2 evaluations was correct" in reason
