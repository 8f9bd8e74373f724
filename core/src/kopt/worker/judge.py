"""The judge: reference, baselines, clock and verdict, for one problem on one device."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from kopt.env import POOLED_ALLOCATOR
from kopt.errors import CandidateError, KoptError, ProblemError, WorkerError
from kopt.evaluator import Compiled, Opening
from kopt.hooks import Hooks
from kopt.machine import gpu_clocks
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Build, Evaluation
from kopt.model.oracle import OracleReport
from kopt.model.reference import InputSet
from kopt.model.sanitizer import DEVICE_SANITIZER_SECONDS, SanitizerReport
from kopt.model.values import CallSpec
from kopt.model.verification import StageResult, Status, Verification
from kopt.runs.builds import emptied
from kopt.worker import device_sanitizer
from kopt.worker.ahead import TargetBuild
from kopt.worker.baselines import BaselineBench, BaselineLostError
from kopt.worker.compiling import AheadCompiler
from kopt.worker.device_lock import DeviceLock, device_of_lock
from kopt.worker.device_room import DeviceRoom
from kopt.worker.forking import Forker, adopts_forks
from kopt.worker.imports import uncollected
from kopt.worker.pool import ProcessPool, ProcessRecipe
from kopt.worker.probing import Probing
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import JudgeSettings
from kopt.worker.stopwatch import Stopwatch
from kopt.worker.timing_inputs import TimingInputs
from kopt.worker.trial import ProcessTrial
from kopt.worker.twins import Twins

Depth = Literal["search", "winner"]
_IMPORTED = frozenset({"torch"})
"""Languages whose build is an import: there is nothing to compile ahead."""
_MAY_BE_ANOTHERS = frozenset({
    Status.WRONG, Status.INCOMPLETE_WRITE, Status.MUTATES_INPUT, Status.INVALID_OUTPUT,
    Status.NON_DETERMINISTIC, Status.DELEGATED, Status.LAUNCH_FAILED, Status.ILLEGAL_ACCESS,
    Status.CRASHED, Status.TIMING_NOT_CREDIBLE,
})  # fmt: skip
"""Ends that a process may owe to the candidate before."""
BASELINES = "baselines"
"""The purpose of a process that baselines are built in; see kopt.hookspecs.kopt_warm_up."""


class Built(NamedTuple):
    """What a process says of a build."""

    build: Build
    timeable: bool
    """Whether its times say anything: not where it is interpreted."""
    late: bool
    """Whether it compiles at its first launch, and can let go of the device meanwhile."""


class _Builders(NamedTuple):
    """Processes that candidates are built in, with one cache."""

    recipe: ProcessRecipe
    pool: ProcessPool
    ahead: AheadCompiler | None


class Judge:
    """Evaluates candidates, one at a time on the device, builds beside it."""

    def __init__(self, settings: JudgeSettings, *, timing: bool = True) -> None:
        """``timing``: whether ``open`` will be called, which needs baselines."""
        self._settings = settings
        plugins = settings.candidate_plugins
        cache, purpose = settings.cache, settings.language
        forker = Forker(cache, plugins, purpose) if adopts_forks() else None
        unopened = ProcessRecipe(
            cache,
            settings.memory_limit,
            plugins,
            {},
            purpose=purpose,
            forker=forker,
            confined=settings.confine,
        )
        self._pool = ProcessPool(unopened, settings.build_workers)
        self._prestarted = _for_baselines(unopened).start() if timing else None
        self._pool.prestart()
        with uncollected():  # before the lock: others measure meanwhile
            self._hooks = Hooks.load(list(settings.judge_plugins))
            self._hooks.kopt_warm_up("reference")
        device = device_of_lock(settings.device)
        self._lock = DeviceLock(settings.locks, device)
        self._room = DeviceRoom(settings.locks, device, self._lock)
        with self._lock.working():
            reference = self._hooks.kopt_open_reference(
                settings.problem, settings.device, self._room
            )
        if reference is None:
            raise ProblemError(
                f"no backend of this run can run the reference of problem {settings.problem.name!r}"
            )
        self.reference = reference
        self._pool.recipe = self._recipe()
        self._bench = BaselineBench(self, settings.fastest)
        self._turn = threading.RLock()
        self._calls: list[CallSpec] = []
        recipe = self._recipe()
        self._search = _Builders(recipe, self._pool, self._ahead_compiler(recipe))
        self.rng = random.Random(settings.seed)
        self.timing = TimingInputs(reference)
        self._stopwatch = Stopwatch(
            self._hooks, reference, self._lock, self._bench, self.timing, self.rng
        )
        self._twins = Twins()
        self._winner: _Builders | None = None
        self._confirming = threading.Lock()
        self.probing = Probing(
            self._recipe(), self._pool, self._lock, self._profiled_inputs, self._built
        )

    def _ahead_compiler(self, recipe: ProcessRecipe) -> AheadCompiler | None:
        """Return what compiles ahead, on a GPU: on a CPU it would disturb what is measured."""
        settings, device = self._settings, self.reference.device
        if device.kind != "cuda" or settings.language in _IMPORTED:
            return None
        return AheadCompiler(
            recipe, device.architecture, settings.build_workers, settings.build_seconds
        )

    def _recipe(self) -> ProcessRecipe:
        settings, reference = self._settings, self.reference
        hidden = settings.problem.reference.model_copy(update={"source": ""})
        problem = settings.problem.model_copy(update={"reference": hidden})
        opening = {
            "problem": problem.to_json(),
            "device": reference.device.to_json(),
            "architecture": settings.architecture,
            "argument_names": [a.name for a in reference.signature.first.arguments],
            "cache": str(settings.cache),
        }
        return replace(self._pool.recipe, opening=opening)

    def open(self) -> Opening:
        """Time the baselines and the noise. Raises ProblemError where no baseline works."""
        verified, failed = self._bench.admit(self._hooks)
        if not verified:
            reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise ProblemError(f"no baseline of {self._settings.problem.name!r} runs: {reasons}")
        with self._lock.exclusive():
            # First, while nothing is drawn to be timed on: it takes as much memory as that does.
            copies = self._stopwatch.copy_ms = {
                name: self.reference.copy_ms(signature.compulsory_bytes)
                for name, signature in self.reference.signature.workloads.items()
            }
        with (
            self._lock.working()
        ):  # inputs are drawn, modules filled: nobody asks how long it takes
            self._bench.bind()
            self._calls = [self.timing.of(w.name)[0].call for w in self.timing.workloads]
        with self._lock.exclusive():
            baselines = self._bench.time(verified)
        clocks = gpu_clocks() if self.reference.device.kind == "cuda" else None
        first = self.reference.signature.first
        bandwidth = first.compulsory_bytes / next(iter(copies.values())) / 1e6
        return Opening(
            device=self.reference.device.model_copy(
                update={"copy_bandwidth_gb_s": bandwidth, "clocks": clocks}
            ),
            signature=self.reference.signature, baselines=tuple(baselines),
            fastest=self._bench.fastest, failed_baselines=failed, noise=self._bench.noise, copy_ms=copies,
        )  # fmt: skip

    def evaluate(self, candidate: Candidate) -> Evaluation:
        """Build, verify and time a candidate; every failure of it is in the answer."""
        return self._retried(candidate, fresh=False)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """The same in a fresh process, with new seeds and inputs, against every baseline."""
        self._bench.unbind()
        self.timing.close()
        with self._built_anew():
            return _confirmed(self._retried(candidate, fresh=True))

    def verify(self, candidate: Candidate) -> Evaluation:
        """Build and verify at full depth, without timing."""
        with self._built_anew():
            return self._retried(candidate, fresh=True, timed=False)

    @contextmanager
    def _built_anew(self) -> Iterator[None]:
        """Build winners with an empty cache: other candidates' processes may have written to the run's."""
        with self._confirming, emptied(self._settings.cache) as cache, ExitStack() as ending:
            recipe = self._recipe()
            recipe = replace(recipe, cache=cache, opening={**recipe.opening, "cache": str(cache)})
            pool = ProcessPool(recipe, self._settings.build_workers)
            ending.callback(pool.close)
            ahead = self._ahead_compiler(recipe)
            if ahead is not None:
                ending.callback(ahead.close)
            pool.prestart(2)  # one for the candidate, one for its twin
            self._winner = _Builders(recipe, pool, ahead)
            try:
                yield
            finally:
                self._winner = None

    def _builders(self, depth: Depth) -> _Builders:
        return self._winner if depth == "winner" and self._winner else self._search

    def test_oracle(self) -> OracleReport:
        """Have the verifiers judge known-wrong results. Raises WorkerError where none can."""
        with self._lock.working():
            report = self._hooks.kopt_test_oracle(self.reference)
        if report is None:
            said = [f"{f.plugin}: {f.error}" for f in self._hooks.failures]
            raise WorkerError(
                f"no verifier tested the oracle ({'; '.join(said) or 'none can'}); kopt-verify can"
            )
        return report

    def compiled(self, candidate: Candidate, target: str, listing: str | None) -> Compiled:
        """Build for a target, on the first workload's shapes; nothing of it runs."""
        inputs = self._profiled_inputs()
        try:
            built = TargetBuild(self._recipe(), target, listing, self._settings.build_seconds)
            return built.run(self.build_in, candidate, inputs.call)
        finally:
            inputs.close()

    def _profiled_inputs(self) -> InputSet:
        return self.reference.inputs(self.timing.workloads[0].name, secrets.randbits(31))

    def _built(
        self, process: CandidateProcess, candidate: Candidate, more_seconds: float
    ) -> ProcessTrial:
        build = self.build_in(process, candidate).build
        return self.trial(process, candidate, build, "winner", more_seconds=more_seconds)

    def _retried(self, candidate: Candidate, *, fresh: bool, timed: bool = True) -> Evaluation:
        start = time.monotonic()
        reason = ""
        for _ in range(2):
            try:
                result = self._once(candidate, fresh=fresh, timed=timed)
                return result.model_copy(update={"seconds": time.monotonic() - start})
            except WorkerError as error:
                reason = str(error)
            except (KoptError, BaselineLostError):
                raise
            except Exception as error:  # noqa: BLE001 - as no memory for the judge's own inputs
                reason = f"{type(error).__name__}: {error}"
            self._let_go()
        return Evaluation(
            candidate=candidate, status=Status.INFRASTRUCTURE_ERROR, detail=reason,
            seconds=time.monotonic() - start,
        )  # fmt: skip

    def _let_go(self) -> None:
        """Give back what is held for timing, so that another try finds more memory."""
        with self._turn:
            self._bench.unbind()
            self.timing.close()

    def _once(self, candidate: Candidate, *, fresh: bool, timed: bool) -> Evaluation:
        ahead = self._builders("winner" if fresh else "search").ahead
        if ahead is not None and self._calls and candidate.language not in _IMPORTED:
            ahead.compile(candidate, self._calls)
        if ahead is None or fresh:
            return self._evaluated(candidate, fresh=fresh, timed=timed)
        with self._turn:  # no more than one process then has the device's memory
            return self._evaluated(candidate, fresh=fresh, timed=timed)

    def _evaluated(self, candidate: Candidate, *, fresh: bool, timed: bool) -> Evaluation:
        result, used = self._evaluated_in(candidate, fresh=fresh, timed=timed, alone=fresh)
        if used and not fresh and result.status in _MAY_BE_ANOTHERS:
            # What an earlier candidate left in its process, as a patched function, is not its fault.
            result, _ = self._evaluated_in(candidate, fresh=fresh, timed=timed, alone=True)
        return result

    def _evaluated_in(
        self, candidate: Candidate, *, fresh: bool, timed: bool, alone: bool
    ) -> tuple[Evaluation, bool]:
        """Also return whether another candidate was in its process before."""
        parts: dict[str, Any] = {"build": None, "verifications": ()}
        depth: Depth = "winner" if fresh else "search"
        used = False
        try:
            with self._builders(depth).pool.process(fresh=alone) as process:
                used = process.uses > 0
                built = self.build_in(process, candidate)
                parts["build"] = built.build
                with self._turn:
                    trial = self.trial(process, candidate, built.build, depth)
                    if not fresh and (twin := self._twins.of(candidate, built.build)):
                        return twin, used
                    timed = timed and built.timeable
                    result = self._judged(trial, parts, fresh=fresh, timed=timed)
                    process.judged(result.status)
                    if not fresh:
                        self._twins.add(result)
                    return result, used
        except CandidateError as error:
            failed = Evaluation(
                candidate=candidate, status=error.status, detail=error.detail, **parts
            )
            return failed, used

    def _judged(
        self, trial: ProcessTrial, parts: dict[str, Any], *, fresh: bool, timed: bool
    ) -> Evaluation:
        if self.timing.crowding:
            self._bench.unbind()
            self.timing.close()
        parts["verifications"] = self.verifications(trial)
        parts["build"] = trial.build
        failed = [v for v in parts["verifications"] if v.status is not Status.CORRECT]
        if failed:
            evidence = "; ".join(s.evidence for s in failed[0].stages if s.outcome == "fail")
            return Evaluation(
                candidate=trial.candidate, status=failed[0].status, detail=evidence, **parts
            )
        measurement = None
        if not fresh and (twin := self._twins.of(trial.candidate, trial.build)):
            return twin  # compiled by its first call
        if timed:
            measurement, stages = self._stopwatch.time(trial, everything=fresh)
            first, *others = parts["verifications"]
            kept = first.model_copy(update={"stages": (*first.stages, *stages)})
            parts["verifications"] = (kept, *others)
        return Evaluation(
            candidate=trial.candidate, status=Status.CORRECT, measurement=measurement, **parts
        )

    @property
    def build_seconds(self) -> float:
        """Deadline of a build."""
        return self._settings.build_seconds

    def build_in(self, process: CandidateProcess, candidate: Candidate) -> Built:
        """Build in a process; the deadline starts when the device lets builds through."""
        with self._lock.building():
            reply = process.order(
                "build", self._settings.build_seconds, candidate=candidate.to_json(),
                key=candidate.id,
            )  # fmt: skip
        return Built(
            process.claim("build", reply, "build", Build),
            timeable=bool(reply.get("timeable")),
            late=bool(reply.get("late")),
        )

    def first_launches(self, trial: ProcessTrial) -> None:
        """Have a baseline launch once on each workload, with the device in turns.

        What compiles at its first launch would keep others from measuring for as long.
        """
        for workload in self._settings.problem.workloads:
            with self._lock.working():
                inputs = self.reference.inputs(workload.name, secrets.randbits(31))
            try:
                trial.first_launch(inputs, self._settings.locks)
                trial.release(inputs)
            finally:
                inputs.close()

    def trial(
        self,
        process: CandidateProcess,
        candidate: Candidate,
        build: Build,
        depth: Depth,
        *,
        more_seconds: float = 0.0,
    ) -> ProcessTrial:
        """Return the handle on a built candidate, with a secret seed.

        ``more_seconds``: beyond the usual deadline, for what compiles when it is called.
        """
        return ProcessTrial(
            process, self.reference, candidate, build, seed=secrets.randbits(31), depth=depth,
            run_seconds=self._settings.run_seconds + more_seconds,
            twin=lambda: self._twin(candidate, depth),
            instrumented=self._instrumented if self.reference.device.kind == "cuda" else None,
            ahead=lambda call: self._compiled_ahead(candidate, call, depth),
            resting=self._lock.resting,
            make_way=self._lock.make_way,
            waited=lambda: self._lock.waited,
        )  # fmt: skip

    def _compiled_ahead(self, candidate: Candidate, call: CallSpec, depth: Depth) -> None:
        ahead = self._builders(depth).ahead
        if ahead is None or candidate.language in _IMPORTED:
            return
        if not ahead.done(candidate, call):
            with self._lock.resting():  # who rests is overtaken
                ahead.compile(candidate, [call])

    def _instrumented(self, candidate: Candidate, inputs: InputSet) -> SanitizerReport:
        def calls(process: CandidateProcess, launches: int) -> None:
            more_seconds = DEVICE_SANITIZER_SECONDS - self._settings.run_seconds
            trial = self._built(process, candidate, more_seconds)
            trial.order("settle")  # seconds under a tool until it has a context; nothing runs yet
            with self._lock.working():
                trial.run(inputs, launches)

        nbytes = sum(segment.nbytes for segment in inputs.segments)
        with self._lock.resting():
            return device_sanitizer.sanitize(self._builders("winner").recipe, nbytes, calls)

    @contextmanager
    def _twin(self, candidate: Candidate, depth: Depth) -> Iterator[ProcessTrial]:
        with ExitStack() as stack:
            with self._lock.resting():
                process = stack.enter_context(self._builders(depth).pool.extra())
                build = self.build_in(process, candidate).build
            yield self.trial(process, candidate, build, depth)

    def verifications(self, trial: ProcessTrial) -> tuple[Verification, ...]:
        """Ask every verifier. Raises WorkerError where none has an opinion."""
        with self._lock.working():
            verdicts = tuple(self._hooks.kopt_verify(trial))
        if not verdicts:
            raise WorkerError("no verifier gave a verdict: is a verifier plugin configured?")
        return verdicts

    def baseline_process(self, *, pooled: bool) -> CandidateProcess:
        """Start a process for baselines, which lives as long as the judge."""
        recipe = _for_baselines(self._recipe())
        if pooled:
            return recipe.ready(recipe.start(environment=POOLED_ALLOCATOR))
        prestarted, self._prestarted = self._prestarted, None
        return recipe.ready(prestarted or recipe.start())


def _for_baselines(recipe: ProcessRecipe) -> ProcessRecipe:
    """Return one with a cache that no candidate writes to: what torch.compile keeps there it runs."""
    cache = recipe.cache.with_name(f"{recipe.cache.name}-baselines")
    opening = {**recipe.opening, "cache": str(cache)} if recipe.opening else recipe.opening
    return replace(
        recipe, purpose=BASELINES, forker=None, confined=False, cache=cache, opening=opening
    )


def _confirmed(evaluation: Evaluation) -> Evaluation:
    """Return it with the last stage, where a fresh process passed all others and was timed."""
    if not evaluation.measured or evaluation.measurement is None or not evaluation.verifications:
        return evaluation
    beside = ", ".join(evaluation.measurement.speedup)
    stage = StageResult(
        stage="confirmation", outcome="pass",
        evidence=f"right in a fresh process with new seeds and inputs, and timed beside {beside}",
    )  # fmt: skip
    first, *others = evaluation.verifications
    kept = first.model_copy(update={"stages": (*first.stages, stage)})
    return evaluation.model_copy(update={"verifications": (kept, *others)})
