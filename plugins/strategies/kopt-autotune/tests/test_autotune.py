from __future__ import annotations

import subprocess
import sys

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import kopt
from kopt.model.device import Target
from kopt.model.verification import StageResult
from kopt.testing import records
from kopt_autotune import Autotune

TARGET = Target(language="cpp", device=records.cpu())
PASSED = kopt.Verification(
    verifier="v",
    status=kopt.Status.CORRECT,
    stages=(StageResult(stage="smoke", outcome="pass"),),
)
SMALL = {
    "VECTOR": kopt.Knob(default=8, choices=(8, 4, 16, 32)),
    "THREADS": kopt.Knob(default=1, choices=(1, 2, 4)),
    "LAYOUT": kopt.Knob(default="row", choices=("row", "column", "tiled")),
}
LARGE = {f"K{i}": kopt.Knob(default=0, choices=tuple(range(8))) for i in range(4)}


def kernel(knobs, **values):
    return kopt.Candidate(language="cpp", source="//", entry="f", knobs=knobs, values=values)


def measured(candidate, speedup):
    interval = kopt.Interval(median=speedup, low=speedup, high=speedup)
    return kopt.Evaluation(
        candidate=candidate,
        status=kopt.Status.CORRECT,
        verifications=(PASSED,),
        measurement=kopt.Measurement(
            latency_ms=1 / speedup,
            speedup={"eager": interval},
            workloads=(),
            protocol="search",
            noise=0.01,
        ),
    )


def failed(candidate, status=kopt.Status.COMPILE_ERROR):
    return kopt.Evaluation(candidate=candidate, status=status)


def tune(parent, judge, strategy=None, rounds=200):
    """Play a run: propose, evaluate with ``judge``, until nothing is proposed."""
    strategy = strategy or Autotune()
    history = kopt.History([parent], baseline="eager")
    asked = [parent.candidate]
    for _ in range(rounds):
        best = history.best() or parent
        proposals = list(strategy.kopt_propose(best, history, TARGET))
        if not proposals:
            return history, asked
        asked += proposals
        for candidate in proposals:
            history.add(judge(candidate))
    raise AssertionError("autotune never ends")


def changed(candidate, other):
    return [name for name, value in candidate.chosen.items() if value != other.chosen[name]]


def test_nothing_is_proposed_without_a_parent_or_without_knobs():
    history = kopt.History(baseline="eager")
    assert list(Autotune().kopt_propose(None, history, TARGET)) == []
    bare = measured(kernel({}), 2.0)
    assert list(Autotune().kopt_propose(bare, kopt.History([bare]), TARGET)) == []


def test_one_knob_moves_to_neighbours_come_first():
    parent = measured(kernel(SMALL), 1.0)
    first = list(Autotune().kopt_propose(parent, kopt.History([parent], baseline="eager"), TARGET))
    assert [c.idea for c in first] == ["LAYOUT=column", "LAYOUT=tiled", "THREADS=2", "VECTOR=4"]
    assert all(c.strategy == "autotune" and c.parents == (parent.id,) for c in first)
    everything = Autotune(Autotune.Options(batch=100)).kopt_propose(
        parent, kopt.History([parent]), TARGET
    )
    moves = [len(changed(c, parent.candidate)) for c in everything]
    assert moves == sorted(moves)
    assert len(moves) == 4 * 3 * 3 - 1


def test_moves_go_out_from_the_best_so_far():
    parent = measured(kernel(SMALL), 1.0)
    better = measured(parent.candidate.with_values("autotune", THREADS=4, VECTOR=16), 3.0)
    history = kopt.History([parent, better], baseline="eager")
    for start in (parent, better):
        for candidate in Autotune().kopt_propose(start, history, TARGET):
            assert len(changed(candidate, better.candidate)) == 1


def test_the_idea_lists_every_change_against_the_parent():
    knobs = {"A": kopt.Knob(default=1, choices=(1, 2)), "B": kopt.Knob(default=1, choices=(1, 2))}
    parent = measured(kernel(knobs), 1.0)
    ideas = [c.idea for c in Autotune().kopt_propose(parent, kopt.History([parent]), TARGET)]
    assert ideas == ["A=2", "B=2", "A=2, B=2"]


def test_a_small_space_is_swept_whole_and_once_given_patience():
    def judge(candidate):
        return measured(candidate, 1.0 + candidate.chosen["VECTOR"] * candidate.chosen["THREADS"])

    parent = judge(kernel(SMALL))
    patient = Autotune(Autotune.Options(patience=100))
    history, asked = tune(parent, judge, patient)
    assert len({c.id for c in asked}) == len(asked) == len(history) == 36
    best = history.best().candidate.chosen
    assert best["VECTOR"] == 32
    assert best["THREADS"] == 4


@pytest.mark.parametrize("status", ["compile-error", "oom", "wrong", "hang"])
def test_failures_are_not_repeated_and_use_up_patience(status):
    parent = measured(kernel(SMALL), 1.0)
    strategy = Autotune(Autotune.Options(patience=5, batch=1))
    _, asked = tune(parent, lambda c: failed(c, kopt.Status(status)), strategy)
    assert len({c.id for c in asked}) == len(asked) == 1 + 5


def test_patience_starts_again_with_an_improvement_of_more_than_one_percent():
    parent = measured(kernel(SMALL), 1.0)
    for third, ends_after in ((1.005, 4), (1.02, 7)):
        speeds = iter([1.0, 1.0, third])
        strategy = Autotune(Autotune.Options(patience=4, batch=1))
        _, asked = tune(parent, lambda c, s=speeds: measured(c, next(s, 0.9)), strategy)
        assert len(asked) == 1 + ends_after


def valley(candidate):
    return measured(candidate, 9.0 - sum(abs(v - 5) for v in candidate.chosen.values()) / 4)


def test_a_large_space_is_sampled_and_gets_better():
    strategy = Autotune(Autotune.Options(patience=40))
    history, asked = tune(valley(kernel(LARGE)), valley, strategy)
    assert len({c.id for c in asked}) == len(asked) < 8**4
    assert history.speedup(history.best()) >= 8.5  # of 9; the start has 4, 1 % of settings this
    assert any(len(changed(c, history.best().candidate)) > 1 for c in asked)


def test_sampling_leaves_optunas_log_alone_and_warns_of_nothing(capfd):
    before = optuna.logging.get_verbosity()
    tune(valley(kernel(LARGE)), valley)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_a_sampled_space_of_few_settings_is_left_once_all_are_known():
    knobs = {"A": kopt.Knob(default=0, choices=(0, 1)), "B": kopt.Knob(default=0, choices=(0, 1))}
    strategy = Autotune(Autotune.Options(max_sweep=1, patience=50, batch=1))
    _, asked = tune(measured(kernel(knobs), 1.0), lambda c: measured(c, 1.0), strategy)
    assert len({c.id for c in asked}) == len(asked) == 4


outcome = st.sampled_from(["wrong", "oom", 0.5, 1.0, 1.005, 2.0, 4.0])


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([SMALL, LARGE]),
    st.lists(outcome, min_size=1, max_size=16),
    st.integers(0, 2**40),
)
def test_a_resumed_run_proposes_the_same(knobs, outcomes, seed):
    """Every prefix of a run's history, read back from JSON, gives the proposals made there."""
    parent = measured(kernel(knobs), 1.0)
    history, told, queue = kopt.History([parent], baseline="eager"), [], iter(outcomes)
    options = Autotune.Options(seed=seed)
    strategy = Autotune(options)
    while proposals := list(strategy.kopt_propose(history.best(), history, TARGET)):
        told.append((list(history), [c.id for c in proposals]))
        results = [next(queue, None) for _ in proposals]
        for candidate, result in zip(proposals, results, strict=True):
            if isinstance(result, float):
                history.add(measured(candidate, result))
            elif result is not None:
                history.add(failed(candidate, kopt.Status(result)))
        if None in results:
            break
    for prefix, expected in told:
        read = [kopt.Evaluation.model_validate_json(e.model_dump_json()) for e in prefix]
        resumed = kopt.History(read, baseline="eager")
        again = Autotune(options).kopt_propose(resumed.best(), resumed, TARGET)
        assert [c.id for c in again] == expected


value = (
    st.booleans()
    | st.integers(-9, 9)
    | st.floats(-4, 4).map(lambda v: v + 0.25)
    | st.text(max_size=2)
)


@st.composite
def any_knobs(draw):
    knobs = {}
    for name in draw(st.lists(st.sampled_from("ABCDE"), unique=True, min_size=1, max_size=5)):
        choices = draw(st.lists(value, min_size=1, max_size=5))
        knobs[name] = kopt.Knob(default=draw(st.sampled_from(choices)), choices=tuple(choices))
    return knobs


@settings(deadline=None, max_examples=60)
@given(any_knobs(), st.integers(1, 5), st.integers(1, 200))
def test_any_space_ends_without_repeating_a_setting(knobs, batch, max_sweep):
    options = Autotune.Options(batch=batch, max_sweep=max_sweep, patience=25)
    judge = lambda c: measured(c, 1.0)  # noqa: E731
    _, asked = tune(judge(kernel(knobs)), judge, Autotune(options))
    assert len({c.id for c in asked}) == len(asked)


def test_importing_the_strategy_does_not_import_optuna():
    code = "import sys, kopt_autotune; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"patience": 0}, {"max_sweep": 0}, {"pacience": 1}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValidationError):
        Autotune.Options(**options)
