"""The loop: the only module that knows the order of the stages. No torch, no candidate code."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from kopt.errors import PluginError, RunPausedError, RunStoreError
from kopt.evaluator import Evaluator, Opening
from kopt.hooks import Hooks
from kopt.metering import MeteredModel
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.device import Target
from kopt.model.diagnosis import Diagnosis
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.run import Run, RunStatus
from kopt.plugins.isolation import PluginFailure
from kopt.reporter import Reporter, Silent
from kopt.runs.completions import CompletionStore
from kopt.runs.events import (
    Confirmed,
    Diagnosed,
    Evaluated,
    Event,
    Finished,
    Opened,
    PluginFailed,
    Proposed,
)
from kopt.runs.journal import Journal
from kopt.runs.state import PendingRound, RunState
from kopt.runs.store import RunFolder
from kopt.stages.judging import Diagnoser
from kopt.stages.proposing import propose

_MOST_CONFIRMATIONS = 3
_MOST_SAID = 300
SETTLE_SECONDS = 30.0
"""How long a run that has ended waits for what its language model is still writing, to count it."""
INTERRUPTED_SECONDS = 3.0
"""The same where it was interrupted."""


class _ModelStoppedError(Exception):
    """Nothing more can be proposed while the language model does not answer."""


class Session:
    """One run, from its folder's state to its end."""

    def __init__(
        self,
        folder: RunFolder,
        journal: Journal,
        hooks: Hooks,
        evaluator: Evaluator,
        *,
        reporter: Reporter | None = None,
    ) -> None:
        self._folder, self._journal, self._hooks = folder, journal, hooks
        self._evaluator = evaluator
        self._reporter: Reporter = reporter or Silent()
        self._state: RunState = folder.load()
        self._problem, self._config = self._state.problem, self._state.config
        self._carried, self._started = self._state.spend, time.monotonic()
        self._trials = len(self._state.evaluations)
        self._round = self._state.rounds
        self._opening: Opening | None = None
        self._diagnoser: Diagnoser | None = None
        self._known = dict(self._state.diagnosed)
        self.history = History(self._state.evaluations, profiled=self._state.profiled)
        self._settled = False
        """Whether the search policy ended the search, if need be before anything was evaluated."""
        self._writing = threading.RLock()
        self._llm = self._language_model() if hooks.has("llm") else None
        hooks.on_failure = self._plugin_failed

    @property
    def spend(self) -> Spend:
        """What the run has used up, earlier parts included."""
        seconds = self._carried.seconds + time.monotonic() - self._started
        update: dict[str, float] = {"seconds": seconds, "trials": self._trials}
        if self._llm is not None:
            update["tokens"] = self._carried.tokens + self._llm.tokens
            update["usd"] = self._carried.usd + self._llm.usd
            update["unpriced_tokens"] = self._carried.unpriced_tokens + self._llm.unpriced_tokens
        return self._carried.model_copy(update=update)

    def run(self) -> Run:
        """Go on until a reason to stop; return the run. Raises KoptError."""
        try:
            if self._llm is not None:
                self._llm.count_lost(self._state.unsettled)
            self._open()
            reason = self._search()
            best, unconfirmed = self._confirm()
            return self._finish(best, reason + unconfirmed)
        except KeyboardInterrupt:
            return self._end("interrupted", "interrupted; go on with `kopt resume`", None)
        except (RunPausedError, _ModelStoppedError) as error:
            return self._end("interrupted", str(error), None)

    def _open(self) -> None:
        self._reporter.opening(self._problem.name, self._config.device)
        opening = self._evaluator.open()
        _check_same_machine(self._state.opening, opening)
        if self._state.opening is not None:
            # What strategies are told stays the same: else a language model is asked anew.
            opening = opening.model_copy(update={"device": self._state.opening.device})
        self._opening = opening
        self.history.baseline = opening.fastest
        self.history.copy_speedup = _copy_speedup(opening)
        self._write(Opened(opening=opening))
        self._reporter.opened(opening)
        self._hooks.kopt_run_started(self._as_run("running", ""))

    def _search(self) -> str:
        """Run rounds until a budget, a policy or the strategies end it; return why."""
        pending: PendingRound | None = self._state.pending
        while True:
            if reason := self._stop():
                return reason
            if pending is not None:
                candidates: Sequence[Candidate] = pending.candidates
                pending = None
            else:
                parents = self._parents()
                if self._round and not parents and self.history.best() is not None:
                    return "the search policy selects nothing more"
                candidates = self._proposals(parents)
                if not candidates:
                    return self._nothing_new(parents)
                ids = tuple(parent.id for parent in parents)
                self._write(
                    Proposed(round_number=self._round, parents=ids, candidates=tuple(candidates))
                )
                self._round += 1
            self._evaluate(candidates)

    def _nothing_new(self, parents: Sequence[Evaluation]) -> str:
        """Return why a run ends that has no more candidates.

        Raises _ModelStoppedError where it would have some if its language model answered, and
        nobody else came to a result.
        """
        if self._llm is not None and self._llm.stopped:
            if self.history.best() is None or not self._has_other_strategies():
                raise _ModelStoppedError(f"{self._llm.stopped}; go on with `kopt resume`")
            return f"the other strategies propose nothing new, and {self._llm.stopped}"
        if self._round and not parents:
            return "no candidate is correct and measured: nothing to go on from"
        return "the strategies propose nothing new"

    def _has_other_strategies(self) -> bool:
        """Whether a strategy is there that needs no language model."""
        return any(p.info.role == "strategy" and not p.needs_llm for p in self._hooks.plugins)

    def _stop(self) -> str | None:
        """Return why to end the search; time alone does not, before anything was evaluated."""
        budget = self._config.budget
        counts = budget if len(self.history) else budget.model_copy(update={"seconds": None})
        if reason := self.spend.exceeded(counts):
            return reason
        reason = self._hooks.kopt_stop(self.history, budget, self.spend)
        self._settled = reason is not None
        return reason

    def _parents(self) -> list[Evaluation]:
        if not self._round:
            return []
        chosen = self._hooks.kopt_select(self.history, self._round)
        if chosen is None:
            raise PluginError(
                f"the search policy {self._config.search!r} selected nothing: it failed, or it "
                "implements no kopt_select; see the events above"
            )
        return list(chosen)

    def _proposals(self, parents: Sequence[Evaluation]) -> list[Candidate]:
        opening = self._opened
        language, *beside = self._config.languages
        target = Target(language=language, beside=tuple(beside), device=opening.device)
        pairs = [(parent, self._diagnosed(parent)) for parent in parents]
        return propose(
            self._hooks, self._problem, opening.signature, target, pairs or [(None, [])],
            self.history, self._llm,
        )  # fmt: skip

    def _diagnosed(self, parent: Evaluation) -> list[Diagnosis]:
        """Return what the judges make of a parent; where there is none, nothing is profiled."""
        if not self._hooks.has("judge"):
            return []
        known = self._known.pop(parent.id, None)
        if known is not None and known.judged:
            return list(known.diagnoses)
        diagnoser = self._diagnosing()
        if before := self.history.profiles(parent.id):
            diagnoser.recall(parent.id, before)
        profiles = tuple(diagnoser.profiles(parent))
        self.history.add_profiles(parent.id, profiles)
        try:
            found = tuple(diagnoser.diagnose(parent, self.history))
        except RunPausedError:
            self._write(Diagnosed(parent=parent.id, profiles=profiles, judged=False))
            raise
        self._write(Diagnosed(parent=parent.id, profiles=profiles, diagnoses=found))
        return list(found)

    def _diagnosing(self) -> Diagnoser:
        if self._diagnoser is None:
            opening = self._opened
            self._diagnoser = Diagnoser(
                self._hooks, self._problem, opening.signature, opening.device,
                lambda parent: self._evaluator.probe(parent.candidate), self._llm,
            )  # fmt: skip
        return self._diagnoser

    def _evaluate(self, candidates: Sequence[Candidate]) -> None:
        """Evaluate a round; a budget that runs out leaves the rest of it pending."""
        left = self._config.budget.trials
        allowed = list(candidates) if left is None else list(candidates)[: left - self._trials]
        self._reporter.proposed(self._round, allowed)
        size = self._config.build_workers or 4
        for start in range(0, len(allowed), size):
            if self._stop():
                return
            found = []
            for evaluation in self._evaluator.evaluate(allowed[start : start + size]):
                self._record(evaluation)
                found.append(evaluation)
            self._profile_watched(found)

    def _profile_watched(self, evaluations: Sequence[Evaluation]) -> None:
        """Profile those of which metrics were predicted; whoever predicted them compares them."""
        if not self._hooks.has("profiler"):
            return
        for evaluation in evaluations:
            wanted = evaluation.candidate.watched and evaluation.measured and not evaluation.same_as
            if wanted and not self.history.profiles(evaluation.id) and not self._stop():
                profiles = tuple(self._diagnosing().profiles(evaluation))
                self.history.add_profiles(evaluation.id, profiles)
                self._write(Diagnosed(parent=evaluation.id, profiles=profiles, judged=False))

    def _record(self, evaluation: Evaluation) -> None:
        self._trials += 1
        self.history.add(evaluation)
        self._write(Evaluated(evaluation=evaluation))
        self._reporter.evaluated(evaluation, self.history.best())
        if self._llm is not None:
            self._llm.take()
        self._hooks.kopt_candidate_evaluated(evaluation)

    def _confirm(self) -> tuple[Evaluation | None, str]:
        """Return the fastest candidate that holds in a fresh process with new seeds, or why none does.

        Where it holds and is no improvement, slower ones are tried only if they seemed to be one.
        """
        first: Evaluation | None = None
        failed: list[Evaluation] = []
        for evaluation in self.history.ranked()[:_MOST_CONFIRMATIONS]:
            if first is not None and not _improved(evaluation):
                break
            if self._config.confirm == "faster" and _slower(evaluation):
                slower = "; the fastest kernel was slower in the search, and is not confirmed"
                return None, _unconfirmed(failed) if failed else slower
            self._reporter.confirming(evaluation.candidate)
            confirmed = self._evaluator.confirm(evaluation.candidate)
            self._write(Confirmed(evaluation=confirmed))
            if confirmed.measured:
                if _improved(confirmed):
                    return confirmed, ""
                first = first or confirmed
            else:
                self._reporter.unconfirmed(confirmed)
                failed.append(confirmed)
        return first, "" if first or not failed else _unconfirmed(failed)

    def _finish(self, best: Evaluation | None, reason: str) -> Run:
        status: RunStatus = "improved" if best and _improved(best) else "not-improved"
        if not len(self.history) and not self._settled:
            status = "failed"
            reason = f"nothing was evaluated: {reason}"
        return self._end(status, reason, best)

    def _end(self, status: RunStatus, reason: str, best: Evaluation | None) -> Run:
        if self._llm is not None:
            with suppress(KeyboardInterrupt):  # who is in that much of a hurry waits for no bills
                self._llm.settle(INTERRUPTED_SECONDS if status == "interrupted" else SETTLE_SECONDS)
        run = self._as_run(status, reason, best)
        self._folder.write_result(run)  # first: a run that is said to have ended has a result
        self._write(Finished(status=status, reason=reason))
        self._hooks.kopt_run_finished(run)
        self._reporter.finished(run)
        return run

    @property
    def _opened(self) -> Opening:
        assert self._opening is not None, "the problem was not opened"
        return self._opening

    def _as_run(self, status: RunStatus, reason: str, best: Evaluation | None = None) -> Run:
        opening = self._opening
        counts = Counter(str(evaluation.status) for evaluation in self.history)
        return Run(
            id=self._folder.id, folder=self._folder.path.absolute(), status=status, reason=reason,
            problem=self._problem, config=self._config,
            device=opening.device if opening else None,
            baselines={b.name: b.measurement for b in opening.baselines} if opening else {},
            failed_baselines=opening.failed_baselines if opening else {},
            copy_ms=_mean_copy(opening) if opening else None,
            best=best,
            source_path=self._folder.write_best(best.candidate).absolute() if best else None,
            trials=dict(sorted(counts.items())), spend=self.spend, plugins=self._hooks.sources(),
        )  # fmt: skip

    def _language_model(self) -> MeteredModel:
        store = CompletionStore(self._folder.path / "completions")
        return MeteredModel(
            self._hooks, self._config.budget, lambda: self.spend, self._write, store,
            self._reporter.warned,
        )  # fmt: skip

    def _write(self, event: Event) -> None:
        with self._writing:  # a language model's plugin may fail in a thread
            self._journal.append(event, self.spend)

    def _plugin_failed(self, failure: PluginFailure) -> None:
        self._write(
            PluginFailed(
                plugin=f"{failure.role}.{failure.plugin} ({failure.source})",
                hook=failure.hook,
                message=failure.error,
                retired=failure.retired,
            )
        )


def _improved(evaluation: Evaluation) -> bool:
    """Whether it beats every baseline by more than the noise."""
    measurement = evaluation.measurement
    return measurement is not None and all(map(measurement.beats, measurement.speedup))


def _slower(evaluation: Evaluation) -> bool:
    """Whether the search saw a baseline beat it by more than the noise."""
    measurement = evaluation.measurement
    return measurement is not None and any(
        interval.high < 1.0 - measurement.noise for interval in measurement.speedup.values()
    )


def _unconfirmed(failed: Sequence[Evaluation]) -> str:
    """Say what became of the fastest candidates in a fresh process, for the end of a reason."""
    first = failed[0]
    what = "the fastest candidate was" if len(failed) == 1 else f"the fastest {len(failed)} were"
    said = " ".join(first.detail.split())[:_MOST_SAID]
    return f"; {what} not confirmed: {first.status}{': ' if said else ''}{said}"


def _copy_speedup(opening: Opening) -> float | None:
    """See History.copy_speedup."""
    (fastest,) = [b.measurement for b in opening.baselines if b.name == opening.fastest]
    small = any(w.bytes_moved < opening.device.cache_bytes for w in fastest.workloads)
    if opening.device.kind != "cuda" or small:
        return None
    return fastest.latency_ms / _mean_copy(opening)


def _mean_copy(opening: Opening) -> float:
    measured = opening.baselines[0].measurement.workloads
    total = sum(w.weight for w in measured)
    return sum(w.weight * opening.copy_ms[w.workload] for w in measured) / total


def _check_same_machine(before: Opening | None, now: Opening) -> None:
    """Refuse to mix timings of two machines, drivers or compilers in one run."""
    if before is None or before.device.identity == now.device.identity:
        return
    old, new = before.device.identity, now.device.identity
    changed = ", ".join(
        f"{key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}"
        for key in sorted(old | new) if old.get(key) != new.get(key)
    )  # fmt: skip
    raise RunStoreError(
        f"this run was timed elsewhere ({changed}); its times cannot be compared with new ones. "
        "Start a new run: builds are reused where they still fit"
    )
