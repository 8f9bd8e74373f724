"""Baselines: built, verified and kept alive, so that every candidate is timed beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kopt.errors import CandidateError, WorkerError
from kopt.evaluator import Baseline
from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.measurement import Measurement, fastest_of
from kopt.model.verification import Status
from kopt.stages import measuring
from kopt.stages.measuring import BlockTime, Plan, Subject
from kopt.worker.process import CandidateProcess
from kopt.worker.trial import ProcessTrial, TimedTrial

if TYPE_CHECKING:
    from kopt.worker.judge import Judge

_LOOK = Plan("baseline", blocks=5, block_ms=15.0)
_NOISE = Plan("noise", blocks=15, block_ms=12.0)


class BaselineLostError(Exception):
    """A baseline that had worked died: the judge's fault or the machine's, never a candidate's."""


@contextlib.contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except CandidateError as error:
        raise BaselineLostError(f"a baseline that had worked failed: {error}") from error


class _Standing:
    """A baseline's launches; see kopt.stages.measuring.Subject."""

    def __init__(self, timed: TimedTrial) -> None:
        self._timed = timed

    @property
    def most_launches(self) -> int:
        return self._timed.most_launches

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        with _as_lost():
            return self._timed.block(launches, warm=warm, walled=walled)


class BaselineBench:
    """The baselines of one judge, in trusted processes of their own."""

    def __init__(self, judge: Judge, fastest: str | None) -> None:
        self._judge = judge
        self._given_fastest = fastest
        self._processes: dict[bool, CandidateProcess] = {}
        self._trials: dict[str, ProcessTrial] = {}
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._timed: dict[str, Measurement] = {}
        self.noise = 0.0

    @property
    def names(self) -> list[str]:
        """Baselines that work, in the order in which they were named."""
        return list(self._trials)

    @property
    def fastest(self) -> str:
        """The fastest correct baseline: the one that a search is measured against."""
        if self._given_fastest in self._timed:
            return str(self._given_fastest)
        return fastest_of(self._timed)

    def admit(self, hooks: Hooks) -> tuple[dict[str, Evaluation], dict[str, str]]:
        """Build and verify every baseline that the backends name; return those, and failures."""
        problem, device = self._judge.reference.problem, self._judge.reference.device.kind
        failed: dict[str, str] = {}
        verified: dict[str, Evaluation] = {}
        waiting = hooks.kopt_baselines(problem, device)
        while waiting:
            candidate, *waiting = waiting
            name = candidate.idea
            try:
                verified[name] = self._admit(name, candidate)
            except (CandidateError, WorkerError) as error:
                failed[name] = str(error)
                waiting = [*self._lost(verified), *waiting]
        return verified, failed

    def _lost(self, verified: dict[str, Evaluation]) -> list[Candidate]:
        """Forget processes that died, and return the baselines that died with another one."""
        self._processes = {pooled: p for pooled, p in self._processes.items() if p.alive}
        names = [name for name in verified if not self._trials[name].alive]
        for name in names:
            del self._trials[name]
        return [verified.pop(name).candidate for name in names]

    def time(self, verified: dict[str, Evaluation]) -> list[Baseline]:
        """Time the baselines, and the fastest against itself (the device is the caller's)."""
        measured = {name: self._time(name) for name in verified}
        self._timed = measured
        self.noise = self._against_itself()
        self.trim()
        return [self._baseline(verified[name], measured[name]) for name in verified]

    def _admit(self, name: str, candidate: Candidate) -> Evaluation:
        process = self._process(bool(candidate.settings.get("pooled", False)))
        built = self._judge.build_in(process, candidate)
        # torch.compile builds at the first call
        patience = self._judge.build_seconds
        trial = self._judge.trial(process, candidate, built.build, "search", more_seconds=patience)
        if built.late and self._judge.reference.device.kind == "cuda":
            self._judge.first_launches(trial)
        verdicts = self._judge.verifications(trial)
        wrong = [v for v in verdicts if v.status is not Status.CORRECT]
        if wrong:
            evidence = "; ".join(s.evidence for s in wrong[0].stages if s.outcome == "fail")
            raise CandidateError(wrong[0].status, f"{wrong[0].status}: {evidence}")
        self._trials[name] = trial
        return Evaluation(
            candidate=candidate, status=Status.CORRECT, build=trial.build, verifications=verdicts
        )

    def _process(self, pooled: bool) -> CandidateProcess:
        if pooled not in self._processes:
            self._processes[pooled] = self._judge.baseline_process(pooled=pooled)
        return self._processes[pooled]

    def subject(self, name: str, workload: str) -> Subject:
        """Return a baseline ready to be timed on a workload."""
        key = (name, workload)
        if key not in self._subjects:
            timing = self._judge.timing
            inputs, large = timing.of(workload), timing.large
            with _as_lost():
                self._subjects[key] = _Standing(TimedTrial(self._trials[name], inputs, large=large))
        return self._subjects[key]

    def bind(self) -> None:
        """Have every baseline ready to be timed on every workload; inputs are drawn for that."""
        for workload in self._judge.timing.workloads:
            for name in self.names:
                self.subject(name, workload.name)

    def trim(self) -> None:
        """Have the baselines' processes give cached memory back."""
        with _as_lost():
            for trial in self._trials.values():
                trial.order("trim")

    def unbind(self) -> None:
        """Let go of the timing inputs, which are about to be drawn anew."""
        self._subjects.clear()
        with _as_lost():
            for trial in self._trials.values():
                trial.release_all()

    def _time(self, name: str) -> Measurement:
        first = self.names[0]
        return self._measured(name, {first: first}, _LOOK)

    def _measured(self, name: str, others: dict[str, str], plan: Plan) -> Measurement:
        judge = self._judge
        measured = [
            measuring.measure_workload(
                workload,
                judge.reference.signature.workloads[workload.name].compulsory_bytes,
                self.subject(name, workload.name),
                {label: self.subject(other, workload.name) for label, other in others.items()},
                plan,
                judge.rng,
                ours=True,
            )
            for workload in judge.timing.workloads
        ]
        return measuring.summarise(measured, plan, self.noise)

    def _against_itself(self) -> float:
        """A/A: time the fastest baseline against itself; how far its interval strays from 1."""
        measurement = self._measured(self.fastest, {"itself": self.fastest}, _NOISE)
        interval = measurement.speedup["itself"]
        return max(abs(interval.low - 1.0), abs(interval.high - 1.0))

    def _baseline(self, evaluation: Evaluation, measurement: Measurement) -> Baseline:
        final = measurement.model_copy(update={"noise": self.noise})
        return Baseline(
            name=evaluation.candidate.idea,
            candidate=evaluation.candidate,
            evaluation=evaluation.model_copy(update={"measurement": final}),
        )
