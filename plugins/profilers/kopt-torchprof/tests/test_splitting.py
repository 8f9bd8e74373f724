"""Single calls in a trace: the same sequence again and again, and calls that differ."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from kopt.model.probe import KernelRun, Timeline
from kopt_torchprof.splitting import calls_of


def a_timeline(calls: list[str], gaps: list[float] | None = None) -> Timeline:
    """A trace of calls, each a string of kernels' names; ``gaps`` lie before the kernels in turn."""
    runs, now = [], 0.0
    for call in calls:
        for name in call:
            now += gaps[len(runs) % len(gaps)] if gaps else 1.0
            runs.append(KernelRun(name=name, start_us=now, duration_us=2.0, grid=(1, 1, 1)))
            now += 2.0
    return Timeline(calls=len(calls), kernels=tuple(runs))


def names(timeline: Timeline) -> list[str]:
    return ["".join(run.name for run in call) for call in calls_of(timeline)]


@given(
    call=st.text("ABC", min_size=1, max_size=12),
    calls=st.integers(1, 12),
    gaps=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=7),
)
def test_equal_calls_are_found_whatever_lies_between(call, calls, gaps):
    timeline = a_timeline([call] * calls, gaps)
    found = calls_of(timeline)
    assert ["".join(run.name for run in each) for each in found] == [call] * calls
    assert tuple(run for each in found for run in each) == timeline.kernels


@given(
    call=st.text("ABC", min_size=1, max_size=10),
    others=st.lists(st.text("XYZ", max_size=10), max_size=4),
    data=st.data(),
)
def test_the_most_frequent_call_is_found_among_others(call, others, data):
    order = data.draw(st.permutations([call] * 10 + others))
    timeline = a_timeline(order)
    assume(10 * len(call) > len(timeline.kernels) / 2)
    assume(not _cut_otherwise(call, order))
    assert names(timeline) == [call] * 10


def _cut_otherwise(call: str, order: list[str]) -> bool:
    """Whether the kernels could as well be fewer or other calls, so that nobody can tell."""
    text = "".join(order)
    fewest = len(order) // 2 + 1
    for length in range(1, len(text) // fewest + 1):
        for at in range(len(text) - length + 1):
            other = text[at : at + length]
            count = min(text.count(other), len(order))
            if other != call and fewest <= count and count * length >= 10 * len(call):
                return True
    return False


def test_a_call_that_also_tunes_is_left_out():
    assert names(a_timeline(["ABCCCCAB", *["AB"] * 9])) == ["AB"] * 10
    assert names(a_timeline(["AB", "A", *["AB"] * 8])) == ["AB"] * 9


def test_a_kernel_before_the_first_call_is_no_call():
    timeline = a_timeline(["X", *["AAB"] * 5])
    assert names(timeline.model_copy(update={"calls": 5})) == ["AAB"] * 5


def test_other_grids_are_other_kernels():
    run = KernelRun(name="A", start_us=0.0, duration_us=1.0, grid=(1, 1, 1))
    wide = run.model_copy(update={"grid": (9, 1, 1)})
    found = calls_of(Timeline(calls=3, kernels=(run, run, wide, wide, run, run)))
    assert found == [(run, run), (run, run)]


def test_alternating_calls_are_told_by_their_even_lengths():
    assert names(a_timeline(["AB", "CD"] * 3 + ["AB", "EF"])) == ["AB"] * 4


def test_nothing_stands_out():
    assert calls_of(a_timeline(["ABC", "DE", "FGHI"])) == []
    assert calls_of(a_timeline(["AB", "CD", "EF"])) == []
    assert calls_of(Timeline(calls=3, kernels=())) == []
    assert calls_of(a_timeline(["A", "", ""])) == []


def test_many_kernels_of_equal_calls_are_split_all_the_same():
    call = "ABCAACB" * 100
    assert names(a_timeline([call] * 10)) == [call] * 10
    assert calls_of(a_timeline([call + "A", *[call] * 9])) == []
