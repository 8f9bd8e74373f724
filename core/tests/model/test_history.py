"""What a run knows of its candidates, and what it knew of them earlier."""

from __future__ import annotations

from kopt.model.candidate import Candidate
from kopt.model.diagnosis import Profile, metrics_of
from kopt.model.history import History
from kopt.model.run import RunConfig
from kopt.runs.events import Diagnosed, Entry, Evaluated
from kopt.runs.state import state_of
from kopt.testing import problems, records


def evaluation(number: int):
    return records.measured(Candidate(language="cpp", source=f"int f = {number};", entry="f"), 1.0)


FIRST, SECOND = evaluation(1), evaluation(2)


def profile(value: float) -> Profile:
    return Profile(profiler="ncu", candidate=FIRST.id, metrics=metrics_of({"kernels_us": value}))


def test_a_profile_is_known_from_when_it_was_made() -> None:
    history = records.history([FIRST])
    assert history.profiles(FIRST.id) == ()
    history.add(SECOND)
    history.copy_speedup = 1.5
    history.add_profiles(FIRST.id, [profile(1.0)])
    assert history.profiles(FIRST.id) == (profile(1.0),)
    before = history.until(1)
    assert (list(before), before.profiles(FIRST.id)) == ([FIRST], ())
    again = history.until(2)
    assert (again.profiles(FIRST.id), again.baseline, again.copy_speedup) == (
        (profile(1.0),), history.baseline, 1.5,
    )  # fmt: skip


def test_the_first_profile_stays() -> None:
    """A resumed run measures anew; what strategies were told stays the same."""
    history = records.history([FIRST])
    history.add_profiles(FIRST.id, [profile(1.0)])
    history.add(SECOND)
    history.add_profiles(FIRST.id, [profile(2.0)])
    assert history.profiles(FIRST.id) == history.until(1).profiles(FIRST.id) == (profile(1.0),)


def test_a_resumed_run_knows_what_was_profiled_and_when() -> None:
    events = [
        Evaluated(evaluation=FIRST), Diagnosed(parent=FIRST.id, profiles=(profile(1.0),)),
        Evaluated(evaluation=SECOND), Diagnosed(parent=FIRST.id, profiles=(profile(2.0),)),
    ]  # fmt: skip
    entries = [
        Entry(seq=n, time=0.0, event=event, spend={}) for n, event in enumerate(events)
    ]  # fmt: skip
    config = RunConfig(
        backend="cpp", strategies=("s",), search="greedy", verifiers=(), device="cpu"
    )
    state = state_of(problems.vector_add(), config, entries)
    history = History(state.evaluations, profiled=state.profiled)
    assert history.profiles(FIRST.id) == (profile(1.0),)
    assert history.until(1).profiles(FIRST.id) == (profile(1.0),)
    assert history.until(0).profiles(FIRST.id) == ()
