"""The timing protocol, on clocks that are scripted: what is measured is then known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kopt.errors import CandidateError
from kopt.model.measurement import WorkloadMeasurement
from kopt.model.problem import Workload
from kopt.model.verification import Status
from kopt.stages.measuring import (
    CONFIRM,
    MOST_LAUNCHES,
    SEARCH,
    BlockTime,
    Plan,
    calibrate,
    check_floor,
    measure_workload,
    summarise,
)

PLAN = Plan("test", blocks=9, block_ms=12.0)


class Clock:
    """A subject whose launches take a known time; it notes every block that it was asked for."""

    def __init__(
        self,
        ms: float | Callable[[int], float],
        *,
        device: float | None = None,
        most: int = 1_000_000,
        log: list[str] | None = None,
        name: str = "",
        warm: float = 1.0,
        fixed: float = 0.0,
    ) -> None:
        """``ms`` per launch by the wall, or a function of the block's number; ``device`` likewise.

        ``warm``: by what factor launches on one input set are faster; ``fixed``: ms of every block.
        """
        self._ms = ms if callable(ms) else lambda number: ms
        self._device = device
        self._log = [] if log is None else log
        self._name = name
        self._warm, self._fixed = warm, fixed
        self.most_launches = most
        self.blocks: list[int] = []
        self.walled = 0
        self.warm_blocks = 0

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        self.blocks.append(launches)
        self.walled += walled
        self.warm_blocks += warm
        self._log.append(self._name)
        counted = launches / self._warm if warm else launches
        wall = self._fixed + counted * self._ms(len(self.blocks))
        return BlockTime(wall, None if self._device is None else counted * self._device)


def measure(subject, baselines, plan=PLAN, seed=0, workload=None, *, ours=False):
    return measure_workload(
        workload or Workload(name="w", weight=2.0), 1 << 20, subject, baselines, plan,
        random.Random(seed), ours=ours,
    )  # fmt: skip


# --- how many launches a block has ---


@pytest.mark.parametrize(
    ("ms", "launches"), [(100.0, 1), (12.0, 1), (5.0, 3), (1.0, 12), (0.1, 120), (0.013, 924)]
)
def test_launches_fill_a_block(ms, launches):
    assert calibrate(Clock(ms), 12.0) == launches


def test_very_short_launches_stop_at_a_most():
    assert calibrate(Clock(1e-6), 12.0) == MOST_LAUNCHES
    assert calibrate(Clock(0.0), 12.0) == MOST_LAUNCHES


def test_where_inputs_change_in_place_a_block_is_one_launch():
    subject = Clock(0.001, most=1)
    assert calibrate(subject, 12.0) == 1
    assert set(subject.blocks) == {1}


def test_the_first_launch_counts_for_nothing():
    assert calibrate(Clock(lambda number: 500.0 if number == 1 else 1.0), 12.0) == 12


def test_the_devices_clock_decides_where_there_is_one():
    assert calibrate(Clock(1.0, device=0.1), 12.0) == 120


# --- pairing ---


def test_times_and_speedups_are_those_of_the_clocks():
    found = measure(Clock(0.5), {"eager": Clock(2.0), "compiled": Clock(1.0)})
    assert (found.workload, found.weight, found.bytes_moved) == ("w", 2.0, 1 << 20)
    assert found.latency_ms == found.call_ms == pytest.approx(0.5)
    eager, compiled = found.pairs
    assert (eager.baseline, compiled.baseline) == ("eager", "compiled")
    assert eager.speedup.median == pytest.approx(4.0)
    assert compiled.speedup.low == pytest.approx(2.0)
    assert (eager.launches, eager.baseline_launches, compiled.baseline_launches) == (24, 6, 12)
    assert len(eager.samples_ms) == len(eager.baseline_samples_ms) == 9
    assert found.bandwidth_gb_s == pytest.approx((1 << 20) / 0.5 / 1e6)


def test_every_sample_is_kept():
    subject = Clock(lambda number: 1.0 + number / 1000)
    found = measure(subject, {"eager": Clock(3.0)})
    launches = found.pairs[0].launches
    timed = [(1.0 + n / 1000) for n, count in enumerate(subject.blocks, 1)][-9:]
    assert list(found.pairs[0].samples_ms) == pytest.approx(timed)
    assert subject.blocks[-9:] == [launches] * 9


def test_the_judges_clock_is_asked_about_the_subject_alone():
    """Each clock takes a run of its own; a baseline runs no candidate's code."""
    subject, eager = Clock(0.5, device=0.4), Clock(2.0, device=1.5)
    found = measure(subject, {"eager": eager})
    assert (subject.walled, eager.walled) == (PLAN.blocks, 0)
    assert found.call_ms == pytest.approx(0.5)
    assert found.pairs[0].speedup.median == pytest.approx(1.5 / 0.4)


def test_parties_are_interleaved_in_random_order():
    log: list[str] = []
    subject = Clock(1.0, log=log, name="s")
    baselines = {name: Clock(2.0, log=log, name=name) for name in ("a", "b")}
    measure(subject, baselines)
    timed = log[-27:]
    blocks = [tuple(timed[i : i + 3]) for i in range(0, 27, 3)]
    assert len(log) > 27  # warming up and calibrating came first
    assert all(set(block) == {"s", "a", "b"} for block in blocks)
    assert len(set(blocks)) > 2


def test_what_slows_all_parties_alike_does_not_move_the_ratio():
    """A clock that goes down by half in the middle: pairs within a block cancel it."""
    log: list[str] = []

    def slowing(base: float) -> Callable[[int], float]:
        return lambda number: base * (1.0 + 0.1 * (len(log) // 2))

    found = measure(Clock(slowing(1.0), log=log), {"eager": Clock(slowing(2.0), log=log)})
    assert found.pairs[0].speedup.median == pytest.approx(2.0, rel=0.1)
    assert max(found.pairs[0].samples_ms) > 1.5 * min(found.pairs[0].samples_ms)


def test_the_devices_time_is_the_latency_and_the_walls_is_the_call():
    found = measure(Clock(0.06, device=0.02), {"eager": Clock(0.2, device=0.1)})
    assert found.latency_ms == pytest.approx(0.02)
    assert found.call_ms == pytest.approx(0.06)
    assert found.pairs[0].speedup.median == pytest.approx(5.0)


def test_the_same_seed_gives_the_same_measurement():
    def once() -> object:
        clocks = [noisy(random.Random(seed), 1.0) for seed in (1, 2)]
        return measure(clocks[0], {"eager": clocks[1]})

    first, again = once(), once()
    assert first == again


def test_without_a_baseline_there_are_no_pairs():
    found = measure(Clock(1.0), {})
    assert found.pairs == ()
    assert found.latency_ms == pytest.approx(1.0)


# --- giving up early ---


def blocks_of(plan: Plan, speedup: float) -> int:
    found = measure(Clock(1.0), {"eager": Clock(speedup)}, plan)
    return len(found.pairs[0].samples_ms)


def test_a_hopeless_candidate_is_left_after_three_blocks():
    hopeless = Plan("search", blocks=9, block_ms=12.0, hopeless=2.0)
    assert blocks_of(hopeless, 1.9) == 3
    assert blocks_of(hopeless, 2.1) == 9
    assert blocks_of(PLAN, 0.1) == 9


def test_one_baseline_that_it_beats_is_hope_enough():
    plan = Plan("search", blocks=9, block_ms=12.0, hopeless=2.0)
    found = measure(Clock(1.0), {"fast": Clock(0.5), "slow": Clock(3.0)}, plan)
    assert [len(pair.samples_ms) for pair in found.pairs] == [9, 9]


def test_a_confirmation_looks_longer_and_never_gives_up():
    assert CONFIRM.blocks > SEARCH.blocks
    assert CONFIRM.hopeless == 0.0


# --- a closer look, for a confirmation ---

CLOSE = Plan("test", blocks=9, block_ms=12.0, closely=True)


def test_warm_inputs_are_timed_for_both_sides_of_a_confirmation_only():
    subject, eager = Clock(0.5, warm=2.0), Clock(2.0, warm=4.0)
    found = measure(subject, {"eager": eager}, CLOSE)
    assert found.warm_ms == pytest.approx(0.25)
    assert found.pairs[0].baseline_warm_ms == pytest.approx(0.5)
    assert found.latency_ms == pytest.approx(0.5)
    assert subject.warm_blocks == eager.warm_blocks > 2
    assert CONFIRM.closely and not SEARCH.closely
    assert measure(Clock(0.5), {"eager": Clock(2.0)}).warm_ms is None


def test_the_slope_is_what_one_more_call_costs():
    found = measure(Clock(0.5, fixed=3.0), {"eager": Clock(2.0)}, CLOSE)
    assert found.slope_ms == pytest.approx(0.5)


def test_inputs_that_change_in_place_are_never_warm():
    found = measure(Clock(0.5, most=1), {"eager": Clock(2.0, most=1)}, CLOSE)
    assert (found.warm_ms, found.slope_ms) == (None, None)


@pytest.mark.parametrize(("device", "credible"), [(0.9, True), (0.65, True), (0.55, False)])
def test_a_device_time_below_what_further_calls_cost_is_not_credible(device, credible):
    subject = Clock(1.0, device=device)
    if credible:
        assert measure(subject, {"eager": Clock(2.0)}, CLOSE).slope_ms == pytest.approx(1.0)
        return
    with pytest.raises(CandidateError, match="each further call takes") as caught:
        measure(subject, {"eager": Clock(2.0)}, CLOSE)
    assert caught.value.status is Status.TIMING_NOT_CREDIBLE


# --- what is not believed ---


def test_a_block_that_takes_no_time_is_not_credible():
    with pytest.raises(CandidateError, match="no time at all") as caught:
        measure(Clock(0.0), {"eager": Clock(1.0)})
    assert caught.value.status is Status.TIMING_NOT_CREDIBLE


def test_a_single_block_without_time_is_enough():
    subject = Clock(lambda number: 0.0 if number == 7 else 1.0)
    with pytest.raises(CandidateError, match="no time at all"):
        measure(subject, {"eager": Clock(1.0)})


def test_a_baseline_is_calibrated_once_more_before_it_is_refused():
    """A machine that stood still three times in a row had one launch fill a block."""
    stalls = (2, 3, 4)
    subject = Clock(lambda number: 20.0 if number in stalls else 0.0 if number < 14 else 1.0)
    assert measure(subject, {"eager": Clock(1.0)}, ours=True).latency_ms == pytest.approx(1.0)
    with pytest.raises(CandidateError, match="no time at all"):
        measure(Clock(0.0), {"eager": Clock(1.0)}, Plan("test", 9, 12.0, hopeless=0.5))


def test_a_device_time_that_the_wall_contradicts_is_not_credible():
    with pytest.raises(CandidateError, match="by the device's clock") as caught:
        measure(Clock(1.0, device=0.1), {"eager": Clock(1.0, device=1.0)})
    assert caught.value.status is Status.TIMING_NOT_CREDIBLE


def test_a_baseline_whose_host_cannot_keep_up_is_credible():
    """A reference of 64 small operators takes 0.13 ms on a GPU and 0.8 ms to launch."""
    found = measure(Clock(0.8, device=0.13), {"eager": Clock(0.8, device=0.13)}, CLOSE, ours=True)
    assert found.latency_ms == pytest.approx(0.13)
    assert found.call_ms == pytest.approx(0.8)
    with pytest.raises(CandidateError, match="no time at all"):
        measure(Clock(0.0), {"eager": Clock(1.0)}, ours=True)


@pytest.mark.parametrize(("wall", "device"), [(1.0, 0.5), (0.15, 0.004), (5.0, 5.0)])
def test_launch_overhead_explains_a_difference(wall, device):
    found = measure(Clock(wall, device=device), {"eager": Clock(wall, device=device)})
    assert found.latency_ms == pytest.approx(device)


def test_a_failure_in_a_block_passes_through():
    def dies(number: int) -> float:
        if number == 8:
            raise CandidateError(Status.CRASHED, "gone")
        return 1.0

    with pytest.raises(CandidateError, match="gone"):
        measure(Clock(dies), {"eager": Clock(1.0)})


# --- over workloads ---


def test_workloads_are_summed_up_by_weight():
    heavy = measure(Clock(1.0), {"eager": Clock(4.0)}, workload=Workload(name="h", weight=3.0))
    light = measure(Clock(5.0), {"eager": Clock(5.0)}, workload=Workload(name="l", weight=1.0))
    found = summarise([heavy, light], PLAN, noise=0.02)
    assert found.latency_ms == pytest.approx((3.0 * 1.0 + 5.0) / 4.0)
    assert found.speedup["eager"].median == pytest.approx((4.0**3 * 1.0) ** 0.25)
    assert (found.protocol, found.noise) == ("test", 0.02)
    assert [w.workload for w in found.workloads] == ["h", "l"]
    assert found.beats("eager")


@pytest.mark.parametrize(("speedup", "noise", "better"), [
    (1.10, 0.02, True), (1.10, 0.15, False), (1.0, 0.0, False), (0.9, 0.0, False),
])  # fmt: skip
def test_better_is_more_than_the_noise(speedup, noise, better):
    one = measure(Clock(1.0), {"eager": Clock(speedup)})
    assert summarise([one], PLAN, noise).beats("eager") is better


def noisy(rng: random.Random, mean: float) -> Clock:
    """A subject whose times scatter by 3 %."""
    return Clock(lambda number: rng.gauss(mean, 0.03))


def test_two_equal_subjects_are_told_apart_rarely():
    """A/A under 3 % of noise: an interval above one is a false alarm, about one in forty."""
    alarms = 0
    for seed in range(120):
        rng = random.Random(seed)
        subject, other = noisy(rng, 1.0), noisy(rng, 1.0)
        alarms += measure(subject, {"eager": other}, seed=seed).pairs[0].speedup.low > 1.0
    assert alarms <= 9


def test_a_difference_of_a_tenth_is_found_in_the_same_noise():
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        subject, other = noisy(rng, 1.0), noisy(rng, 1.1)
        found += measure(subject, {"eager": other}, seed=seed).pairs[0].speedup.low > 1.0
    assert found >= 55


def found_in(ms: float, nbytes: int) -> WorkloadMeasurement:
    return measure_workload(
        Workload(), nbytes, Clock(ms), {"eager": Clock(10.0)}, PLAN, random.Random(0)
    )


def test_faster_than_memory_is_not_credible():
    with pytest.raises(CandidateError, match="the work was not done") as caught:
        check_floor(found_in(1.0, 64 << 20), copy_ms=4.0)
    assert caught.value.status is Status.TIMING_NOT_CREDIBLE


@pytest.mark.parametrize(
    ("ms", "nbytes", "copy_ms"), [(1.5, 64 << 20, 4.0), (0.1, 1000, 4.0), (0.1, 64 << 20, None)]
)
def test_a_kernel_may_beat_a_copy(ms, nbytes, copy_ms):
    check_floor(found_in(ms, nbytes), copy_ms)
