from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt.model.device import Device
from kopt.model.diagnosis import Diagnosis, KernelProfile, Profile, metrics_of
from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS
from kopt.model.verification import Status
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_roofline import Roofline
from kopt_roofline.ranking import number
from kopt_roofline.rules import rulebook

STARVED = {"grid_blocks": 16.0, "multiprocessors": 132.0, "dram_busy_percent": 4.0}
SPILLS = {
    "spill_bytes": 256.0, "local_instructions": 4e5, "instructions": 1e6, "local_sectors": 9e5,
    "global_load_bytes": 1e5, "global_store_bytes": 1e5, "grid_blocks": 1e4, "waves": 10.0,
    "dram_busy_percent": 10.0, "stall_long_scoreboard_percent": 90.0,
}  # fmt: skip


def _ask(profiles: list[Profile], device: Device, **options: Any) -> Diagnosis | None:
    return Roofline(Roofline.Options(**options)).kopt_judge(
        problems.row_sum(), problems.row_sum_signature(), a_parent(), profiles, device
    )


def test_a_kernels_gain_counts_for_its_part_of_the_call(judge) -> None:
    """Amdahl: 10x on 10 % of the time is 1.1x, and 5x on 90 % comes before it."""
    small = STARVED | {"duration_us": 30.0, "waves": 0.1, "dram_busy_percent": 10.0}
    diagnosis = judge(SPILLS | {"duration_us": 270.0}, small, call={"bound_us": 1.0})
    spills, starved = diagnosis.findings[0], diagnosis.findings[1]
    assert (spills.bottleneck, spills.kernel) == ("spills", "kernel_0")
    assert (starved.bottleneck, starved.kernel) == ("grid-starvation", "kernel_1")
    assert starved.gain == pytest.approx(1 / (0.9 + 0.1 / 10), abs=1e-3)


def test_no_gain_goes_beyond_the_bound(judge) -> None:
    diagnosis = judge(STARVED, call={"latency_us": 100.0, "bound_us": 50.0})
    assert diagnosis.headroom == 2
    assert max(finding.gain for finding in diagnosis.findings) == 2


def test_a_kernel_takes_no_less_than_an_empty_one(judge) -> None:
    """8 us against 2.2 us of an empty launch."""
    diagnosis = judge(STARVED | {"duration_us": 8.0}, call={"latency_us": 8.0, "bound_us": 0.1})
    assert diagnosis.bottleneck == "grid-starvation"
    assert diagnosis.findings[0].gain == pytest.approx(8 / 2.2, abs=1e-3)


def test_at_the_bound_there_is_nothing_else_to_say(judge) -> None:
    diagnosis = judge(STARVED, SPILLS, call={"latency_us": 100.0, "bound_us": 96.0})
    assert [finding.bottleneck for finding in diagnosis.findings] == ["at-bound"]
    assert diagnosis.headroom == pytest.approx(100 / 96, abs=1e-3)


def test_no_more_is_to_gain_than_a_copy_leaves(judge) -> None:
    """1.4 times by the bound stood beside nothing to gain: a bound leaves out what a launch costs."""
    call = {"latency_us": 15.2, "copy_us": 17.3, "bound_us": 10.8}
    diagnosis = judge(STARVED, SPILLS, call=call)
    assert [finding.bottleneck for finding in diagnosis.findings] == ["at-bound"]
    assert diagnosis.headroom == 1
    diagnosis = judge(call={"latency_us": 100.0, "copy_us": 99.0, "bound_us": 60.0})
    assert diagnosis.headroom == pytest.approx(100 / (0.97 * 99), abs=1e-3)


def test_a_finding_has_evidence_explanation_and_moves(judge) -> None:
    diagnosis = judge(STARVED | {"duration_us": 300.0})
    first = diagnosis.findings[0]
    assert diagnosis.evidence == first.evidence
    assert first.evidence == (
        "grid_blocks = 16", "multiprocessors = 132", "dram_busy_percent = 4 %"
    )  # fmt: skip
    assert first.explanation.startswith("The grid has 16 blocks for 132 multiprocessors")
    assert first.source and first.risk
    assert diagnosis.advice[0] == f"split-k: {rulebook().moves['split-k']}"


def test_launches_alike_are_one_finding(judge) -> None:
    diagnosis = judge(
        *[STARVED | {"block_threads": 64.0, "duration_us": 30.0}] * 5, names=["step"] * 5
    )
    starved = [f for f in diagnosis.findings if f.bottleneck == "grid-starvation"]
    assert len(starved) == 1
    assert "5 launches alike" in starved[0].evidence


def test_what_would_have_decided_other_rules_is_named(judge) -> None:
    few = judge(STARVED)
    assert "pipe_tensor_percent" in few.missing
    assert "stall_barrier_percent" in few.missing
    assert "tensor_cores" not in few.missing
    assert set(few.missing) <= {*CALL_METRICS, *KERNEL_METRICS}
    more = judge(STARVED | {"stall_barrier_percent": 1.0, "stall_membar_percent": 0.0})
    assert "stall_barrier_percent" not in more.missing


def test_without_profiles_the_times_and_the_work_are_judged(gpu: Device) -> None:
    diagnosis = _ask([], gpu)
    assert diagnosis is not None
    assert diagnosis.bottleneck == "unexplained"
    assert diagnosis.headroom is not None and diagnosis.headroom > 100
    assert "grid_blocks" in diagnosis.missing


def test_only_a_correct_candidate_is_judged(gpu: Device) -> None:
    failed = records.failed(a_parent().candidate, Status.HANG)
    signature = problems.row_sum_signature()
    assert Roofline().kopt_judge(problems.row_sum(), signature, failed, [], gpu) is None


def test_no_more_findings_than_asked_for(gpu: Device) -> None:
    kernel = KernelProfile(name="k", metrics=metrics_of(STARVED | SPILLS | {"grid_blocks": 16.0}))
    profile = Profile(profiler="ncu", candidate="c", kernels=(kernel,))
    every, one = _ask([profile], gpu), _ask([profile], gpu, findings=1)
    assert every is not None and one is not None
    assert len(every.findings) > 1
    assert one.findings == every.findings[:1]


def test_a_cpu_is_judged_by_rules_for_cpus() -> None:
    code = KernelProfile(
        name="row_sum",
        metrics=metrics_of(
            {"static_scalar_float_instructions": 9, "static_vector_instructions": 0}
        ),
    )
    profiles = [Profile(profiler="static", candidate="c", kernels=(code,))]
    diagnosis = _ask(profiles, records.cpu())
    assert diagnosis is not None
    assert diagnosis.bottleneck == "cpu-not-vectorised"
    assert "simd-loops" in diagnosis.findings[0].moves


@pytest.mark.parametrize(
    ("value", "text"),
    [(32.0, "32"), (0.02, "0.02"), (16777216.0, "16,777,216"), (123.456, "123"), (-1.5, "-1.5"),
     (1e300, "1e+300"), (5e-324, "4.94e-324")],
)  # fmt: skip
def test_figures_are_written_for_people(value: float, text: str) -> None:
    assert number(value) == text


FINITE = st.one_of(
    st.sampled_from([0.0, 1.0, 50.0, 100.0, 1e12]),
    st.floats(min_value=0, max_value=1e3),
    st.floats(allow_nan=False, allow_infinity=False),
)
KERNELS = st.lists(
    st.builds(
        lambda name, values: KernelProfile(name=name, metrics=metrics_of(values)),
        st.sampled_from(["a", "b", "_Z1aPf", "void b<1>(int)", "", "::", "_ZN"]),
        st.dictionaries(st.sampled_from(sorted(KERNEL_METRICS)), FINITE, max_size=90),
    ),
    max_size=4,
)
PROFILES = st.lists(
    st.builds(
        lambda profiler, call, kernels: Profile(
            profiler=profiler, candidate="c", metrics=metrics_of(call), kernels=tuple(kernels)
        ),
        st.sampled_from(["ncu", "torchprof", "static", "kopt", "mine"]),
        st.dictionaries(st.sampled_from(sorted(CALL_METRICS)), FINITE, max_size=17),
        KERNELS,
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(PROFILES, st.sampled_from(["cpu", "cuda"]))
def test_whatever_profilers_say_it_has_an_answer(profiles: list[Profile], kind: str) -> None:
    """It never raises, says the same twice, and puts first what costs most."""
    device = records.gpu() if kind == "cuda" else records.cpu()
    diagnosis = _ask(profiles, device)
    assert diagnosis == _ask(profiles, device)
    if diagnosis is None:
        return
    gains = [finding.gain for finding in diagnosis.findings]
    assert all(gain is None or 1 <= gain < float("inf") for gain in gains)
    known = [gain for gain in gains if gain is not None]
    assert gains == [*sorted(known, reverse=True), *[None] * (len(gains) - len(known))]
    assert diagnosis.bottleneck == diagnosis.findings[0].bottleneck
    assert all(finding.evidence for finding in diagnosis.findings)
    assert "n/a" not in " ".join(finding.explanation for finding in diagnosis.findings)
    places = [(finding.bottleneck, finding.kernel) for finding in diagnosis.findings]
    assert len(set(places)) == len(places)
