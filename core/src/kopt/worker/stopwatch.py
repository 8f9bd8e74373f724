"""Timing a verified candidate beside the baselines, and looking again at what it computed then."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping

from kopt.errors import CandidateError
from kopt.hooks import Hooks
from kopt.model.measurement import Measurement, WorkloadMeasurement
from kopt.model.problem import Workload
from kopt.model.reference import InputSet, Reference
from kopt.model.values import CallClaim
from kopt.model.verification import StageResult, Status
from kopt.stages import measuring
from kopt.stages.measuring import ByJudge, ClocksDisagreeError, Plan, Subject
from kopt.worker.baselines import BaselineBench
from kopt.worker.device_lock import DeviceLock
from kopt.worker.timing_inputs import TimingInputs
from kopt.worker.trial import ProcessTrial, TimedTrial

_TRACE_FACTOR = 1.5
"""A device time that a trace exceeds by more is not what the kernels took."""

_COPIED = 16
"""Part of the device's memory, as a divisor, that a copy takes which is made beside what is timed."""


class Stopwatch:
    """Times candidates of one problem, alone on the device."""

    def __init__(
        self, hooks: Hooks, reference: Reference, lock: DeviceLock, bench: BaselineBench,
        timing: TimingInputs, rng: random.Random,
    ) -> None:  # fmt: skip
        self._hooks, self.reference, self._lock = hooks, reference, lock
        self._bench, self.timing, self.rng = bench, timing, rng
        self.best_speedup = 0.0
        """The best median of this session over the fastest baseline."""
        self.copy_ms: dict[str, float] = {}
        """What a plain copy of a workload's compulsory bytes takes, by workload."""

    def time(
        self, trial: ProcessTrial, *, everything: bool
    ) -> tuple[Measurement, list[StageResult]]:
        """Time a verified candidate beside the fastest baseline, or beside all of them.

        Also returns what verifiers say of the results of its timed calls. Raises CandidateError
        where those are wrong, or the times are not credible.
        """
        plan = measuring.CONFIRM if everything else self._search_plan()
        names = self._bench.names if everything else [self._bench.fastest]
        stages: list[StageResult] = []
        measured: list[WorkloadMeasurement] = []
        for workload in self.timing.workloads:
            bytes_moved = self.reference.signature.workloads[workload.name].compulsory_bytes
            with self._lock.working():  # inputs are drawn and bound
                subject = TimedTrial(trial, self.timing.of(workload.name), large=self.timing.large)
                baselines = {name: self._bench.subject(name, workload.name) for name in names}
            with self._lock.exclusive():
                found, by_judge = self._measured(workload, bytes_moved, subject, baselines, plan)
                self._check_floor(found)
                self.timing.check_unchanged()
                inputs, claim = subject.fresh_block(found.pairs[0].launches, secrets.randbits(31))
            if self.timing.large:
                self._bench.trim()  # what they keep in reserve the reference needs now
            stages += [*by_judge, *self._recheck(trial, inputs, claim)]
            if everything:
                stages += self._recheck_by_judge(trial, subject, found.pairs[0].launches)
                stages += self._recheck_nearly_same(trial, subject, found.pairs[0].launches)
            measured.append(found)
        self.timing.check_unchanged()
        measurement = measuring.summarise(measured, plan, self._bench.noise).model_copy(
            update={"setup_ms": trial.setup_ms}
        )
        fastest = measurement.speedup[self._bench.fastest].median
        self.best_speedup = max(self.best_speedup, fastest)
        return measurement, stages

    def _measured(
        self,
        workload: Workload,
        bytes_moved: int,
        subject: TimedTrial,
        baselines: Mapping[str, Subject],
        plan: Plan,
    ) -> tuple[WorkloadMeasurement, list[StageResult]]:
        """Time one workload; by the judge's clock where a slow host explains why clocks disagree.

        Then the time is what a caller waits for: never less than the device's. Raises CandidateError.
        """
        try:
            found = measuring.measure_workload(
                workload, bytes_moved, subject, baselines, plan, self.rng
            )
        except ClocksDisagreeError as error:
            traced = subject.traced_ms()
            if traced is None or error.device_ms < traced / _TRACE_FACTOR:
                raise
            alone = ByJudge(subject)
            found = measuring.measure_workload(
                workload, bytes_moved, alone, baselines, plan, self.rng
            )
            evidence = (
                f"{workload.name}: timed by the judge's clock, as the host cannot keep the device "
                f"busy: {error.detail}; a trace of its kernels has {traced:.4f} ms"
            )
            return found, [StageResult(stage="clock", outcome="pass", evidence=evidence)]
        return found, []

    def _check_floor(self, found: WorkloadMeasurement) -> None:
        """Raise CandidateError for a time that no memory gives, by a copy timed now as well.

        The copy of the opening may have met a busy machine, which would wrong an honest kernel.
        """
        kept = self.copy_ms.get(found.workload)
        try:
            measuring.check_floor(found, kept)
        except CandidateError:
            again = min(kept or math.inf, self._copied_again_ms(found.bytes_moved))
            self.copy_ms[found.workload] = again
            measuring.check_floor(found, again)

    def _copied_again_ms(self, nbytes: int) -> float:
        """Time a plain copy, of a part where beside the inputs there may be no room for all."""
        part = max(1, min(nbytes, self.reference.device.memory_bytes // _COPIED))
        return self.reference.copy_ms(part) * nbytes / part

    def _recheck_by_judge(
        self, trial: ProcessTrial, subject: TimedTrial, launches: int
    ) -> list[StageResult]:
        """Look at a block by the judge's clock too: it says whether the device's is believed."""
        if not subject.two_clocks:
            return []
        with self._lock.working():  # nobody asks how long it takes, and to be alone is to wait
            inputs, claim = subject.fresh_block(launches, secrets.randbits(31), by_judge=True)
        return self._recheck(trial, inputs, claim)

    def _recheck_nearly_same(
        self, trial: ProcessTrial, subject: TimedTrial, launches: int
    ) -> list[StageResult]:
        """Look again after one element changed; the inputs are as before afterwards."""
        with self._lock.working():
            changed = subject.nearly_same_block(launches, secrets.randbits(31))
        if changed is None:
            return []
        try:
            return self._recheck(trial, *changed)
        finally:
            changed[0].restore()

    def _recheck(
        self, trial: ProcessTrial, inputs: InputSet, claim: CallClaim
    ) -> list[StageResult]:
        """Have verifiers judge a timed call's results. Raises CandidateError where one fails."""
        with self._lock.working():
            stages = self._hooks.kopt_recheck(trial, inputs, claim)
        for stage in stages:
            if stage.outcome == "fail":
                raise CandidateError(Status.WRONG, f"{stage.stage}: {stage.evidence}")
        return stages

    def _search_plan(self) -> Plan:
        search = measuring.SEARCH
        return Plan(search.name, search.blocks, search.block_ms, hopeless=self.best_speedup / 1.5)
