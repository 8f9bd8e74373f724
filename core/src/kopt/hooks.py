"""The typed face of the hooks: what a run calls, and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kopt.errors import ConfigError, PluginUnavailableError
from kopt.model.candidate import Candidate, Knob
from kopt.model.check import Check
from kopt.model.completion import (
    Completion,
    CompletionRequest,
    ExpectedCalls,
    LanguageModel,
    Price,
)
from kopt.model.device import Device
from kopt.model.diagnosis import Diagnosis, Profile
from kopt.model.evaluation import Evaluation
from kopt.model.oracle import OracleReport
from kopt.model.problem import Problem
from kopt.model.verification import StageResult, Verification
from kopt.plugins.catalog import installed
from kopt.plugins.isolation import IsolatedCalls, PluginFailure
from kopt.plugins.loader import LoadedPlugin, PluginRef, adopt, load

if TYPE_CHECKING:
    from kopt.evaluator import Evaluator
    from kopt.model.budget import Budget, Spend
    from kopt.model.device import Target
    from kopt.model.executable import BuildContext, Executable
    from kopt.model.history import History
    from kopt.model.probe import Probe
    from kopt.model.problem import Signature
    from kopt.model.reference import InputSet, Reference, Room
    from kopt.model.run import Run
    from kopt.model.trial import Trial
    from kopt.model.values import CallClaim

T = TypeVar("T")


class Proposed(NamedTuple):
    """A candidate and the name of the plugin that proposed it."""

    plugin: str
    candidate: Candidate


class Hooks(IsolatedCalls):
    """Every hook as a method with the arguments of its specification.

    How a failing plugin is treated is IsolatedCalls' business, in one way for all hooks.
    """

    @classmethod
    def load(
        cls,
        references: Iterable[tuple[str, object, Mapping[str, object]]],
        instances: Iterable[tuple[str, object]] = (),
    ) -> Hooks:
        """Find, load and bind plugins; nothing is asked yet. Raises PluginErrors and ConfigError.

        :param references: (role, reference, options) in the order of calls. In place of the
            reference an instance may stand, with empty options.
        :param instances: (role, instance), called after those.
        """
        catalog = installed()
        plugins: dict[object, LoadedPlugin] = {}
        for role, what, options in [*references, *((r, i, {}) for r, i in instances)]:
            if not isinstance(what, str):
                if options:
                    raise ConfigError(
                        f"{role}: an instance of {type(what).__name__} was given together with "
                        f"options ({', '.join(options)}); put them into the instance"
                    )
                plugins.setdefault(id(what), adopt(role, what, catalog))
                continue
            plugin = load(role, what, options, catalog)
            known = plugins.setdefault((role, plugin.info.reference), plugin)
            if known.ref != plugin.ref:
                raise ConfigError(
                    f"{plugin.info.label} is named twice with different options; name it once"
                )
        return cls(list(plugins.values()))

    def references(self, *roles: str) -> list[PluginRef]:
        """Return what ``load`` needs to build the plugins of these roles in another process.

        Raises ConfigError for an instance that no installed name leads to.
        """
        chosen = [plugin for plugin in self.plugins if plugin.info.role in roles]
        for plugin in chosen:
            if plugin.ref is None:
                raise ConfigError(
                    f"{plugin.info.label} is needed in a worker process, which can load it by name "
                    f"only; give its class an entry point in the group kopt.{plugin.info.role} and "
                    "keep its options as self.options"
                )
        return [plugin.ref for plugin in chosen if plugin.ref is not None]

    def ensure_available(self) -> None:
        """Raise PluginUnavailableError that names every plugin which cannot work here, and why."""
        failed = [
            f"{label}: {c.detail}; {c.fix}" for label, c in self._checks() if c.state == "fail"
        ]
        if failed:
            raise PluginUnavailableError(" | ".join(failed))

    def has(self, role: str) -> bool:
        """Whether a plugin of this role is loaded."""
        return any(plugin.info.role == role for plugin in self.plugins)

    def kopt_check(self) -> list[Check]:
        """Collect every plugin's rows; one that raises gets a row that says so."""
        return [check for _, check in self._checks()]

    def kopt_load_problem(self, path: Path) -> Problem | None:
        """Return the problem of the first format that reads ``path``."""
        return self._first("kopt_load_problem", _one(Problem), {"path": path})

    def kopt_submit(self, problem: Problem, device: str) -> Evaluator | None:
        """Return the first executor's evaluator; None: local processes."""
        return self._first("kopt_submit", _as_is, {"problem": problem, "device": device})

    def kopt_open_reference(self, problem: Problem, device: str, room: Room) -> Reference | None:
        """Return the problem made runnable by the first backend that can."""
        arguments = {"problem": problem, "device": device, "room": room}
        return self._first("kopt_open_reference", _as_is, arguments)

    def kopt_baselines(self, problem: Problem, device: str) -> list[Candidate]:
        """Return every backend's baselines."""
        rows = self._each("kopt_baselines", Candidate, {"problem": problem, "device": device})
        return [candidate for _, candidate in rows]

    def kopt_test_oracle(self, reference: Reference) -> OracleReport | None:
        """Return what the first verifier says of the oracle; None: none can test it."""
        return self._first("kopt_test_oracle", _one(OracleReport), {"reference": reference})

    def kopt_measure_device(self, device: str) -> Device | None:
        """Return what the first backend measured; None: none measures such a device."""
        return self._first("kopt_measure_device", _one(Device), {"device": device})

    def kopt_read_profile(self, path: Path) -> Profile | None:
        """Return what the first profiler reads in a report; None: it is none of theirs."""
        return self._first("kopt_read_profile", _one(Profile), {"path": path})

    def kopt_profile(
        self, problem: Problem, evaluation: Evaluation, device: Device, probe: Probe
    ) -> list[Profile]:
        """Return what each profiler found."""
        arguments = {
            "problem": problem, "evaluation": evaluation, "device": device, "probe": probe,
        }  # fmt: skip
        return self._all("kopt_profile", Profile, arguments)

    def kopt_judge(
        self,
        problem: Problem,
        signature: Signature,
        evaluation: Evaluation,
        profiles: Sequence[Profile],
        device: Device,
        history: History,
        diagnoses: Sequence[Diagnosis] = (),
        llm: LanguageModel | None = None,
    ) -> list[Diagnosis]:
        """Return each judge's opinion; each is told ``diagnoses``, and those before its own."""
        told = tuple(diagnoses) if isinstance(diagnoses, list) else diagnoses
        arguments = {
            "problem": problem, "signature": signature, "evaluation": evaluation,
            "profiles": profiles, "device": device, "history": history, "diagnoses": told,
            "llm": llm,
        }  # fmt: skip
        check = _one(Diagnosis)

        def heard(answer: Any) -> Diagnosis:
            found = check(answer)
            if isinstance(arguments["diagnoses"], tuple):
                arguments["diagnoses"] = (*arguments["diagnoses"], found)
            return found

        return [found for _, found in self.ask_all("kopt_judge", heard, arguments)]

    def kopt_propose(
        self,
        problem: Problem,
        signature: Signature,
        target: Target,
        parent: Evaluation | None,
        diagnoses: Sequence[Diagnosis],
        history: History,
        llm: LanguageModel | None = None,
    ) -> list[Proposed]:
        """Return every strategy's candidates, with the name of the plugin that proposed each.

        What a strategy yielded before it raised is dropped: a resumed run must see the same. For the
        first kernels those that need a language model are asked only where no other has any.
        """
        arguments = {
            "problem": problem, "signature": signature, "target": target, "parent": parent,
            "diagnoses": diagnoses, "history": history, "llm": llm,
        }  # fmt: skip
        if parent is not None or history:
            rows = self._each("kopt_propose", Candidate, arguments)
        else:
            rows = self._each("kopt_propose", Candidate, arguments, only=_needs_no_model)
            if not rows:
                rows = self._each("kopt_propose", Candidate, arguments, only=lambda p: p.needs_llm)
        return [Proposed(plugin.info.name, candidate) for plugin, candidate in rows]

    def first_without_model(
        self, problem: Problem, signature: Signature, target: Target, history: History
    ) -> list[Proposed]:
        """Return what kopt_propose begins with: candidates of those that need no language model.

        ``history`` is an empty one.
        """
        arguments = {
            "problem": problem, "signature": signature, "target": target, "parent": None,
            "diagnoses": (), "history": history, "llm": None,
        }  # fmt: skip
        rows = self._each("kopt_propose", Candidate, arguments, only=_needs_no_model)
        return [Proposed(plugin.info.name, candidate) for plugin, candidate in rows]

    def kopt_tunables(self, candidate: Candidate) -> Mapping[str, Knob] | None:
        """Return what the first backend found; None: none knows the language.

        Knobs that the candidate cannot have are the plugin's failure.
        """
        check = _found_knobs(candidate)
        return self._first("kopt_tunables", check, {"candidate": candidate})

    def kopt_warm_up(self, purpose: str) -> None:
        """Have every backend import what it needs for that purpose."""
        self.ask_all("kopt_warm_up", _as_is, {"purpose": purpose})

    def kopt_build(
        self, problem: Problem, candidate: Candidate, context: BuildContext
    ) -> Executable | None:
        """Return what the first backend built. Raises CandidateError, or WorkerError (see class)."""
        arguments = {"problem": problem, "candidate": candidate, "context": context}
        return self._first("kopt_build", _as_is, arguments)

    def kopt_verify(self, trial: Trial) -> list[Verification]:
        """Return every verdict. Raises CandidateError; WorkerError where a verifier failed or is
        retired: a verdict less is not a pass."""
        return self._all("kopt_verify", Verification, {"trial": trial})

    def kopt_recheck(self, trial: Trial, inputs: InputSet, claim: CallClaim) -> list[StageResult]:
        """Return every opinion on a timed call's results. Raises as ``kopt_verify`` does."""
        arguments = {"trial": trial, "inputs": inputs, "claim": claim}
        return self._all("kopt_recheck", StageResult, arguments)

    def kopt_select(self, history: History, round_number: int) -> Sequence[Evaluation] | None:
        """Return the next round's parents; None: no search answered."""
        arguments = {"history": history, "round_number": round_number}
        return self._first("kopt_select", _many(Evaluation), arguments)

    def kopt_stop(self, history: History, budget: Budget, spend: Spend) -> str | None:
        """Return the first search's reason to stop; None: go on."""
        arguments = {"history": history, "budget": budget, "spend": spend}
        return self._first("kopt_stop", _one(str), arguments)

    def kopt_expect(
        self, problem: Problem, signature: Signature, target: Target, budget: Budget, others: int
    ) -> list[tuple[str, ExpectedCalls]]:
        """Return what each strategy would ask of a language model, with the strategy's name."""
        arguments = {
            "problem": problem, "signature": signature, "target": target, "budget": budget,
            "others": others,
        }  # fmt: skip
        rows = self._each("kopt_expect", ExpectedCalls, arguments)
        return [(plugin.info.name, calls) for plugin, calls in rows]

    def kopt_price(self, role: str) -> Price | None:
        """Return what the model for a role costs; None: nobody knows."""
        return self._first("kopt_price", _one(Price), {"role": role})

    def kopt_complete(self, request: CompletionRequest) -> Completion | None:
        """Return the first model's answer. Raises CompletionError."""
        return self._first("kopt_complete", _one(Completion), {"request": request})

    def kopt_give_up(self, request: CompletionRequest) -> None:
        """Have the models end a request."""
        self.ask_all("kopt_give_up", _as_is, {"request": request})

    def kopt_run_started(self, run: Run) -> None:
        """Tell every observer."""
        self.ask_all("kopt_run_started", _as_is, {"run": run})

    def kopt_candidate_evaluated(self, evaluation: Evaluation) -> None:
        """Tell every observer."""
        self.ask_all("kopt_candidate_evaluated", _as_is, {"evaluation": evaluation})

    def kopt_run_finished(self, run: Run) -> None:
        """Tell every observer."""
        self.ask_all("kopt_run_finished", _as_is, {"run": run})

    def _checks(self) -> list[tuple[str, Check]]:
        """Return each row of kopt_check with the label of its plugin."""
        before = len(self.failures)
        rows = self._each("kopt_check", Check, {})
        failures = self.failures[before:]
        return [
            *((plugin.info.label, check) for plugin, check in rows),
            *((f"{f.role} {f.plugin!r} ({f.source})", _failed_check(f)) for f in failures),
        ]

    def _all(self, hook: str, kind: type[T], arguments: Mapping[str, object]) -> list[T]:
        answers = self.ask_all(hook, _one(kind), arguments)
        return [answer for _, answer in answers]

    def _each(
        self,
        hook: str,
        kind: type[T],
        arguments: Mapping[str, object],
        only: Callable[[LoadedPlugin], bool] | None = None,
    ) -> list[tuple[LoadedPlugin, T]]:
        """Ask for iterables; return their items, each with its plugin."""
        answers = self.ask_all(hook, _many(kind), arguments, only=only)
        return [(plugin, item) for plugin, items in answers for item in items]

    def _first(
        self, hook: str, convert: Callable[[Any], T], arguments: Mapping[str, object]
    ) -> T | None:
        answers = self.ask_all(hook, convert, arguments, only_first=True)
        return answers[0][1] if answers else None


def _needs_no_model(plugin: LoadedPlugin) -> bool:
    return not plugin.needs_llm


def _failed_check(failure: PluginFailure) -> Check:
    return Check(
        name=f"{failure.role} {failure.plugin}",
        state="fail",
        detail=f"its check raised {failure.error}",
        fix=f"report it to the authors of {failure.source}, or do not use it",
    )


def _one(kind: type[T]) -> Callable[[Any], T]:
    """Return a check that an answer is a ``kind``."""

    def convert(answer: Any) -> T:
        if not isinstance(answer, kind):
            raise TypeError(f"answered with {type(answer).__name__}, not {kind.__name__}")
        return answer

    return convert


def _many(kind: type[T]) -> Callable[[Any], list[T]]:
    """Return a check that an answer is an iterable of ``kind``, which it makes into a list."""
    check = _one(kind)

    def convert(answer: Any) -> list[T]:
        if isinstance(answer, (kind, str)):
            raise TypeError(f"answered with {type(answer).__name__}, not many {kind.__name__}")
        return [check(item) for item in answer]

    return convert


def _found_knobs(candidate: Candidate) -> Callable[[Any], Mapping[str, Knob]]:
    """Return a check that an answer is knobs with edits which fit the candidate's source."""

    def convert(answer: Any) -> Mapping[str, Knob]:
        knobs = candidate.with_knobs(answer).knobs
        if bare := [name for name, knob in knobs.items() if not knob.edits]:
            raise ValueError(f"knob {bare[0]!r} has no edits: its value would change nothing")
        if candidate.with_knobs(knobs).text != candidate.source:
            raise ValueError("at the defaults the source is not as it stands")
        return knobs

    return convert


def _as_is(answer: Any) -> Any:
    return answer
