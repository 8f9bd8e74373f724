"""Predicted metrics beside measured ones: whether an expectation came true, and what is not known."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kopt.model.candidate import Candidate
from kopt.model.completion import CompletionRequest
from kopt.model.device import Target
from kopt.model.diagnosis import KernelProfile, Profile, metrics_of
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.verification import Status
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_rewrite import Rewrite
from kopt_rewrite.comparing import Compared, Comparison, Unmeasured, compare, watched
from kopt_rewrite.ideas import Expectation, Idea, expectations_of
from kopt_rewrite.outcomes import expected, tried_lines

_spec = importlib.util.spec_from_file_location("prompts_read", Path(__file__).parent / "prompts_read.py")  # fmt: skip
assert _spec and _spec.loader
prompts_read = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(prompts_read)

PARENT = a_parent()


def made(expects: str, speedup: float = 2.5, source: str = "y", **resources) -> Evaluation:
    """A child of the parent, which took 500 us; at 2.5 it takes 400."""
    candidate = Candidate(
        language="cpp", source=source, entry="y", parents=(PARENT.id,), strategy="rewrite",
        idea=f"wide loads: 32 bytes (expects {expects}) [1:1]",
    )  # fmt: skip
    found = records.measured(candidate, speedup)
    return with_resources(found, **resources)


def with_resources(evaluation: Evaluation, **resources) -> Evaluation:
    build = evaluation.build.model_copy(update={"resources": resources})
    return evaluation.model_copy(update={"build": build})


def profile(
    of: Evaluation, profiler: str = "ncu", *kernels: dict[str, float], **call: float
) -> Profile:
    parts = tuple(
        KernelProfile(name=f"k{n}", metrics=metrics_of(each)) for n, each in enumerate(kernels)
    )
    return Profile(profiler=profiler, candidate=of.id, metrics=metrics_of(call), kernels=parts)


def past(child: Evaluation, before: list[Profile] = [], after: list[Profile] = []) -> History:  # noqa: B006 - never changed
    history = records.history([PARENT, child])
    if before:
        history.add_profiles(PARENT.id, before)
    if after:
        history.add_profiles(child.id, after)
    return history


def test_a_profiles_metrics_are_compared_with_what_was_predicted():
    child = made("latency_us x0.5, dram_bytes x0.5, l1_hit_percent x1.5, kernel_launches x1")
    history = past(
        child,
        [profile(PARENT, "ncu", {"dram_bytes": 1000, "l1_hit_percent": 40}, kernel_launches=1)],
        [profile(child, "ncu", {"dram_bytes": 520, "l1_hit_percent": 30}, kernel_launches=1)],
    )
    found = compare(child, PARENT, history)
    assert found is not None
    assert found.lines == [
        "latency_us: expected x0.5, measured x0.8 (500 -> 400): less than expected",
        "dram_bytes: expected x0.5, measured x0.52 (1000 -> 520): as expected",
        "l1_hit_percent: expected x1.5, measured x0.75 (40 -> 30): the other way",
        "kernel_launches: expected x1, measured x1 (1 -> 1): as expected",
    ]
    assert found.missing == ""


def test_one_that_was_not_profiled_is_said_not_to_have_been():
    child = made("latency_us x0.5, dram_bytes x0.5, l1_hit_percent x1.5")
    history = past(child, [profile(PARENT, "ncu", {"dram_bytes": 1000})])
    found = compare(child, PARENT, history)
    assert found is not None
    assert [one.metric for one in found.compared] == ["latency_us"]
    assert found.missing == (
        "It was not profiled, so these were not measured: dram_bytes, l1_hit_percent"
    )
    assert found.short == "latency_us x0.8 for x0.5 (less than expected), not profiled"


def test_what_no_profiler_saw_of_both_is_not_measured():
    """Two profilers' figures are never compared with one another."""
    child = made("dram_bytes x0.5")
    history = past(
        child, [profile(PARENT, "ncu", {"dram_bytes": 8.0})],
        [profile(child, "other", {"dram_bytes": 4.0})],
    )  # fmt: skip
    found = compare(child, PARENT, history)
    assert found is not None
    assert (found.compared, found.lines) == ((), [])
    assert found.missing == "No profiler measured these of both kernels: dram_bytes"


def test_a_failure_says_that_nothing_was_measured():
    child = records.failed(made("latency_us x0.5, dram_bytes x0.5").candidate, Status.WRONG)
    found = compare(child, PARENT, past(child))
    assert found is not None
    assert found.missing == "It failed before these were measured: latency_us, dram_bytes"
    assert (found.lines, found.short) == ([], "")


def test_builds_tell_registers_without_a_profiler():
    parent = with_resources(PARENT, kernels=[{"registers": 64, "spill_bytes": 16}])
    child = made(
        "registers_per_thread x0.5, spill_bytes x0.5, shared_bytes x2",
        kernels=[{"registers": 30, "spill_bytes": 0}, {"registers": 32, "spill_bytes": None}],
    )
    found = compare(child, parent, past(child))
    assert found is not None
    assert [(one.metric, one.before, one.after) for one in found.compared] == [
        ("registers_per_thread", 64, 32), ("spill_bytes", 16, 0),
    ]  # fmt: skip
    assert [found.verdict(one) for one in found.compared] == ["as expected", "more than expected"]
    assert found.unmeasured == ("shared_bytes",)


def test_kernels_of_a_call_add_up_and_the_longest_speaks_for_the_rest():
    child = made("dram_bytes x0.5, achieved_occupancy_percent x2")
    one = {"duration_us": 9.0, "dram_bytes": 600, "achieved_occupancy_percent": 20}
    other = {"duration_us": 1.0, "dram_bytes": 400, "achieved_occupancy_percent": 90}
    fused = {"duration_us": 5.0, "dram_bytes": 500, "achieved_occupancy_percent": 40}
    history = past(child, [profile(PARENT, "ncu", other, one)], [profile(child, "ncu", fused)])
    found = compare(child, PARENT, history)
    assert found is not None
    assert [(each.before, each.after) for each in found.compared] == [(1000, 500), (20, 40)]


@pytest.mark.parametrize(
    ("wanted", "before", "after", "verdict"),
    [
        (0.5, 100, 50, "as expected"),
        (0.5, 100, 60, "as expected"),
        (0.5, 100, 70, "less than expected"),
        (0.5, 100, 30, "more than expected"),
        (0.5, 100, 101, "no change"),
        (0.5, 100, 150, "the other way"),
        (2.0, 100, 210, "as expected"),
        (2.0, 100, 50, "the other way"),
        (1.0, 100, 100, "as expected"),
        (1.0, 100, 150, "it changed"),
        (0.985, 100, 101.2, "both too small to tell"),
        (0.985, 100, 98.5, "both too small to tell"),
        (0.985, 100, 110, "the other way"),
        (0.985, 100, 80, "more than expected"),
        (0.5, 0, 0, "no change"),
        (0.5, 0, 5, "the other way"),
        (2.0, 0, 5, "more than expected"),
        (0.5, 5, 0, "more than expected"),
        (2.0, 5, 0, "the other way"),
    ],
)
def test_verdicts(wanted, before, after, verdict):
    one = Compared("dram_bytes", wanted, before, after)
    found = Comparison((one,), (), Unmeasured.NOT_SEEN, 0.01)
    assert found.verdict(one) == verdict
    assert "nan" not in found.lines[0] and "inf" not in found.lines[0]


def test_a_change_within_the_noise_is_none():
    one = Compared("latency_us", 0.5, 100, 95)
    assert Comparison((one,), (), Unmeasured.NOT_SEEN, 0.1).verdict(one) == "no change"
    assert Comparison((one,), (), Unmeasured.NOT_SEEN, 0.01).verdict(one) == "less than expected"


def test_expectations_are_read_back_from_an_ideas_text():
    expects = (
        Expectation(metric="latency_us", factor=0.4),
        Expectation(metric="dram_bytes", factor=1.25e-05),
    )
    for change in ("Use omp simd.", "Load (expects nothing) more.", ""):
        assert expectations_of(Idea(title="t", change=change, expects=expects).text) == expects
    assert expectations_of("BLOCK=128") == ()
    assert expectations_of("t (expects magic x0.5, latency_us x, latency_us xnan)") == ()


def asked(answers, history: History, parent: Evaluation) -> dict[str, list[CompletionRequest]]:
    ideas = json.dumps([{"title": "another", "expects": {"latency_us": 0.9}}])
    texts = {"reflection": '[{"lesson": "Half the bytes, x0.8 of the time."}]', "analysis": ideas}
    llm = answers(lambda request: texts.get(request.role, "no"))
    list(Rewrite().kopt_propose(
        problems.row_sum(), problems.row_sum_signature(),
        Target(language="cpp", device=records.cpu()), parent, [], history, llm,
    ))  # fmt: skip
    found: dict[str, list[CompletionRequest]] = {}
    for request in llm.asked:
        found.setdefault(request.role, []).append(request)
        prompts_read.check(request.messages[-1].content)
    return found


def test_what_only_a_profiler_sees_is_watched():
    idea = "wide (expects latency_us x0.5, dram_bytes x0.5, registers_per_thread x0.9) [1:1]"
    assert watched(idea) == ("dram_bytes",)
    assert watched("wide (expects latency_us x0.5, of_copy_percent x1.1)") == ()


def test_the_reflector_and_the_memory_are_told(answers):
    """A success that was profiled, one that was not, and a failure: each says what is known of it."""
    best = made("latency_us x0.5, dram_bytes x0.5", 2.5)
    plain = made("latency_us x0.9, dram_bytes x0.9", 1.9, source="z")
    lost = records.failed(made("latency_us x0.3", source="w").candidate, Status.WRONG)
    history = records.history([PARENT])
    history.add_profiles(PARENT.id, [profile(PARENT, "ncu", {"dram_bytes": 1000})])
    for each in (best, plain, lost):
        history.add(each)
    history.add_profiles(best.id, [profile(best, "ncu", {"dram_bytes": 480})])
    found = asked(answers, history, best)
    [reflection] = found["reflection"]
    said = reflection.messages[-1].content
    assert "dram_bytes: expected x0.5, measured x0.48 (1000 -> 480): as expected" in said
    assert "latency_us: expected x0.9, measured x1.053 (500 -> 526.3): the other way" in said
    assert "It was not profiled, so these were not measured: dram_bytes." in said
    assert "It failed before these were measured: latency_us." in said
    assert said.count("It was not profiled") == 1
    analysis = found["analysis"][0].messages[-1].content
    assert "dram_bytes x0.48 for x0.5 (as expected)" in analysis
    assert "latency_us x1.053 for x0.9 (the other way), not profiled" in analysis
    assert tried_lines(history)[-1].endswith("failed: wrong (test: wrong)")


def test_what_was_profiled_later_does_not_change_what_was_asked(answers):
    """A round asks for its lessons in the words of its time, though more is known by now."""
    child = made("latency_us x0.5, dram_bytes x0.5")
    history = past(child, [profile(PARENT, "ncu", {"dram_bytes": 1000})])
    before = asked(answers, history, PARENT)["reflection"]
    other = records.measured(made("latency_us x0.7", source="q").candidate.model_copy(
        update={"idea": "another (expects latency_us x0.9) [2:2]"}), 2.1)  # fmt: skip
    history.add(other)
    history.add_profiles(child.id, [profile(child, "ncu", {"dram_bytes": 480})])
    after = asked(answers, history, child)["reflection"]
    assert before[0].id == after[0].id
    assert expected(child, history.until(2)) != expected(child, history)
