"""One timing protocol for candidates and baselines: interleaved blocks on the judge's clock."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kopt.errors import CandidateError
from kopt.model.measurement import Measurement, PairedSamples, WorkloadMeasurement
from kopt.model.problem import Workload
from kopt.model.verification import Status
from kopt.stages.intervals import combined, median_interval

MOST_LAUNCHES = 2000
_FLOOR_FACTOR = 3.0
_LEAST_BYTES = 4 << 20
"""Less than this fits into caches, where a copy is no measure."""
_UNDONE = "the work was not done in the timed calls"
_LAUNCH_BOUND_MS = 0.2
"""A launch from Python takes less than this; longer differences need another explanation."""


@dataclass(frozen=True)
class Plan:
    """How long to look."""

    name: str
    blocks: int
    block_ms: float
    hopeless: float = 0.0
    """Stop after three blocks if the speedup is below this."""
    closely: bool = False
    """Also time warm inputs, and what one more call costs."""


SEARCH = Plan("search", blocks=9, block_ms=12.0)
CONFIRM = Plan("confirm", blocks=25, block_ms=25.0, closely=True)
_FURTHER_BLOCKS = 5
_SLOPE_FACTOR = 1.5
_SLOPE_SLACK_MS = 0.1
"""A launch from Python takes less; more per call needs another explanation."""


@dataclass(frozen=True)
class BlockTime:
    """One block of launches."""

    wall_ms: float
    """Judge's clock, without the cost of an empty order; where that was not asked for, the device's."""
    device_ms: float | None
    """The device's own clock, as reported; None where it has none."""


class Subject(Protocol):
    """Something whose launches can be timed on one workload."""

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        """Run that many launches over rotating inputs, or on the same ones. Raises CandidateError.

        ``walled``: whether the judge's clock is wanted too where the device has one, which takes a
        second run.
        """
        ...

    @property
    def most_launches(self) -> int:
        """Launches that a block may have (1 where inputs change in place)."""
        ...


class ByJudge:
    """A subject by the judge's clock alone, whatever the device's says."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    @property
    def most_launches(self) -> int:
        """As the subject's."""
        return self._subject.most_launches

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        """Run the block; its device time is left out. Raises CandidateError."""
        return BlockTime(self._subject.block(launches, warm=warm).wall_ms, None)


class ClocksDisagreeError(CandidateError):
    """The device's clock shows far less than the judge's: a forgery, or a host that is slow."""

    def __init__(self, device_ms: float, wall_ms: float, detail: str) -> None:
        super().__init__(Status.TIMING_NOT_CREDIBLE, detail)
        self.device_ms, self.wall_ms = device_ms, wall_ms


@dataclass
class _Samples:
    launches: int
    time_ms: list[float] = field(default_factory=list)
    """Per call: device time where there is one, else wall clock."""
    call_ms: list[float] = field(default_factory=list)
    by_judge: bool = True
    """Whether ``time_ms`` is the judge's own clock."""

    def add(self, block: BlockTime) -> None:
        self.by_judge = self.by_judge and block.device_ms is None
        per_call = block.wall_ms / self.launches
        self.call_ms.append(per_call)
        self.time_ms.append(
            per_call if block.device_ms is None else block.device_ms / self.launches
        )


def calibrate(subject: Subject, block_ms: float) -> int:
    """Warm up and return how many launches fill a block of ``block_ms``."""
    subject.block(1, walled=False)
    launches, most = 1, min(subject.most_launches, MOST_LAUNCHES)
    while launches < most:
        spent = _spent(subject, launches)
        if spent >= block_ms / 4:  # once more: a stall of the machine looks like work
            spent = min(spent, _spent(subject, launches), _spent(subject, launches))
        if spent >= block_ms / 4:
            return max(1, min(most, math.ceil(launches * block_ms / spent)))
        launches = min(most, launches * 8)
    return launches


def _spent(subject: Subject, launches: int) -> float:
    block = subject.block(launches, walled=False)
    return block.wall_ms if block.device_ms is None else block.device_ms


def measure_workload(
    workload: Workload,
    bytes_moved: int,
    subject: Subject,
    baselines: Mapping[str, Subject],
    plan: Plan,
    rng: random.Random,
    *,
    ours: bool = False,
) -> WorkloadMeasurement:
    """Time ``subject`` beside every baseline, in random order within each block.

    ``ours``: it runs no candidate's code, so that its device clock needs no second opinion; a
    reference of many small operators keeps the host busy for longer than the device.
    """
    parties = {"": subject, **baselines}
    samples = _sampled(parties, plan, rng)
    if ours and min(samples[""].time_ms) <= 0.0:
        samples = _sampled(parties, plan, rng)  # stalls may have looked like work in calibrating
    own = samples[""]
    _check_credible(own, ours=ours)
    warm: dict[str, float | None] = dict.fromkeys(parties)
    slope = None
    if plan.closely and subject.most_launches > 1:
        warm = _warm_ms(parties, samples)
        slope = _slope_ms(subject, own)
        if not ours:
            _check_slope(subject, own, slope)
    return WorkloadMeasurement(
        workload=workload.name,
        weight=workload.weight,
        latency_ms=statistics.median(own.time_ms),
        call_ms=statistics.median(own.call_ms),
        bytes_moved=bytes_moved,
        pairs=tuple(_pair(name, own, samples[name], rng, warm[name]) for name in baselines),
        warm_ms=warm[""],
        slope_ms=slope,
    )


def _sampled(parties: Mapping[str, Subject], plan: Plan, rng: random.Random) -> dict[str, _Samples]:
    samples = {name: _Samples(calibrate(party, plan.block_ms)) for name, party in parties.items()}
    for number in range(plan.blocks):
        order = list(parties)
        rng.shuffle(order)
        for name in order:
            launches = samples[name].launches
            samples[name].add(parties[name].block(launches, walled=not name))
        if number == 2 and plan.hopeless and _fastest_ratio(samples) < plan.hopeless:
            break
    return samples


def _warm_ms(
    parties: Mapping[str, Subject], samples: Mapping[str, _Samples]
) -> dict[str, float | None]:
    """Time every party on one input set that it has just used."""
    found: dict[str, list[float]] = {name: [] for name in parties}
    for _ in range(_FURTHER_BLOCKS):
        for name, party in parties.items():
            launches = max(2, samples[name].launches)
            block = party.block(launches, warm=True, walled=False)
            spent = block.wall_ms if block.device_ms is None else block.device_ms
            found[name].append(spent / launches)
    return {name: statistics.median(times) for name, times in found.items()}


def _slope_ms(subject: Subject, own: _Samples) -> float:
    """Return what one more call costs by the judge's clock: fixed costs of a block cancel."""
    many = min(subject.most_launches, max(4, own.launches))
    few = max(1, many // 4)
    walls: dict[int, list[float]] = {few: [], many: []}
    for _ in range(_FURTHER_BLOCKS):
        for launches, found in walls.items():
            found.append(subject.block(launches).wall_ms)
    return (statistics.median(walls[many]) - statistics.median(walls[few])) / (many - few)


def _check_slope(subject: Subject, own: _Samples, slope: float) -> None:
    """Refuse device times that are less than what further calls cost the judge."""
    if own.by_judge:
        return
    claimed = statistics.median(own.time_ms)
    limit = _SLOPE_FACTOR * claimed + _SLOPE_SLACK_MS
    if slope > limit and min(slope, _slope_ms(subject, own)) > limit:
        raise ClocksDisagreeError(
            claimed, slope,
            f"{claimed:.4f} ms by the device's clock, but each further call takes {slope:.4f} ms by "
            "the judge's",
        )  # fmt: skip


def _fastest_ratio(samples: Mapping[str, _Samples]) -> float:
    """Speedup of the subject over the baseline that it does best against."""
    own = statistics.median(samples[""].time_ms)
    if own <= 0.0:
        return math.inf
    return max(
        (statistics.median(s.time_ms) / own for name, s in samples.items() if name), default=1.0
    )


def _check_credible(own: _Samples, *, ours: bool) -> None:
    """Refuse device times that the judge's own clock contradicts."""
    device, wall = statistics.median(own.time_ms), statistics.median(own.call_ms)
    if min(own.time_ms) <= 0.0:
        raise CandidateError(Status.TIMING_NOT_CREDIBLE, f"a block took no time at all: {_UNDONE}")
    if not ours and wall > 3.0 * device and wall > _LAUNCH_BOUND_MS:
        raise ClocksDisagreeError(
            device, wall, f"{device:.4f} ms by the device's clock, {wall:.4f} ms by the judge's"
        )


def check_floor(found: WorkloadMeasurement, copy_ms: float | None) -> None:
    """Refuse a latency that no memory system can give.

    ``copy_ms`` is a plain copy of the compulsory bytes, measured on this device. A kernel may beat
    it (other stores, cached inputs, parts of an input that need not be read), but not three times.
    Raises CandidateError.
    """
    if copy_ms is None or found.bytes_moved < _LEAST_BYTES:
        return
    if found.latency_ms < copy_ms / _FLOOR_FACTOR:
        raise CandidateError(
            Status.TIMING_NOT_CREDIBLE,
            f"{found.workload}: {found.latency_ms:.4g} ms for {found.bytes_moved} bytes that have "
            f"to be moved, which this device copies in {copy_ms:.4g} ms: {_UNDONE}",
        )


def _pair(
    name: str, own: _Samples, other: _Samples, rng: random.Random, warm: float | None
) -> PairedSamples:
    ratios = [b / s for s, b in zip(own.time_ms, other.time_ms, strict=True)]
    return PairedSamples(
        baseline=name,
        launches=own.launches,
        baseline_launches=other.launches,
        samples_ms=tuple(own.time_ms),
        baseline_samples_ms=tuple(other.time_ms),
        speedup=median_interval(ratios, rng),
        baseline_warm_ms=warm,
    )


def summarise(workloads: Sequence[WorkloadMeasurement], plan: Plan, noise: float) -> Measurement:
    """Combine workloads: weighted mean latency, weighted geometric mean speedups."""
    total = sum(w.weight for w in workloads)
    names = [pair.baseline for pair in workloads[0].pairs]
    speedup = {
        name: combined([(w.weight, w.pairs[i].speedup) for w in workloads])
        for i, name in enumerate(names)
    }
    return Measurement(
        latency_ms=sum(w.weight * w.latency_ms for w in workloads) / total,
        speedup=speedup,
        workloads=tuple(workloads),
        protocol=plan.name,
        noise=noise,
    )
