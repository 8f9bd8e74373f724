"""Clocks that disagree: a slow host is timed by the judge's clock, a forgery is refused."""

from __future__ import annotations

import random

import pytest

from kopt.errors import CandidateError
from kopt.model.problem import Workload
from kopt.model.verification import Status
from kopt.stages.measuring import CONFIRM, SEARCH, BlockTime, ByJudge, Plan
from kopt.worker.stopwatch import Stopwatch

WORKLOAD = Workload(name="default")


class Clocks:
    """A subject whose calls take so long by either clock, and by a trace."""

    most_launches = 256

    def __init__(self, wall: float, device: float, traced: float | None = None) -> None:
        self.wall, self.device, self.traced = wall, device, traced

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        return BlockTime(self.wall * launches, self.device * launches)

    def traced_ms(self) -> float | None:
        return self.traced


def measured(subject: Clocks, plan: Plan = SEARCH):  # type: ignore[no-untyped-def]
    watch = object.__new__(Stopwatch)  # its rule alone is asked
    watch.rng = random.Random(0)
    return watch._measured(WORKLOAD, 1 << 20, subject, {"eager": Clocks(1.0, 1.0)}, plan)  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", [SEARCH, CONFIRM], ids=lambda plan: plan.name)
@pytest.mark.parametrize("traced", [0.07, 0.1])
def test_a_slow_host_is_timed_by_the_judges_clock(plan: Plan, traced: float) -> None:
    """64 small kernels: 0.07 ms of the device, 0.4 ms until they are launched."""
    found, stages = measured(Clocks(0.4, 0.07, traced), plan)
    assert found.latency_ms == pytest.approx(0.4)
    assert found.pairs[0].speedup.median == pytest.approx(2.5)
    (stage,) = stages
    assert (stage.stage, stage.outcome) == ("clock", "pass")
    assert f"a trace of its kernels has {traced:.4f} ms" in stage.evidence


@pytest.mark.parametrize("traced", [None, 0.39, 0.2])
def test_a_claim_that_no_trace_supports_is_refused(traced: float | None) -> None:
    with pytest.raises(CandidateError, match="by the device's clock") as caught:
        measured(Clocks(0.4, 0.07, traced))
    assert caught.value.status is Status.TIMING_NOT_CREDIBLE


def test_clocks_that_agree_need_no_trace() -> None:
    found, stages = measured(Clocks(0.5, 0.45))
    assert (found.latency_ms, stages) == (pytest.approx(0.45), [])


def test_by_the_judge_a_device_time_does_not_count() -> None:
    assert ByJudge(Clocks(0.4, 0.07)).block(10) == BlockTime(4.0, None)
