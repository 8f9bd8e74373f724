"""The face of the hooks: typed answers, isolation of failures, retirement, what passes through."""

from __future__ import annotations

import inspect
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kopt
from kopt import hookspecs, logs
from kopt.errors import (
    CandidateError,
    ConfigError,
    DeviceError,
    KoptError,
    PluginError,
    PluginUnavailableError,
    ProblemError,
    UnknownPluginError,
    WorkerError,
)
from kopt.hooks import Hooks, Proposed
from kopt.model.completion import Completion, CompletionRequest, Message
from kopt.model.reference import Alone
from kopt.plugins.isolation import FAILURES_TO_RETIRE, PluginFailure

# Stand-ins for arguments that no plugin below looks at.
ANY: Any = None

Reference = tuple[str, object, dict[str, object]]


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged, as JSON lines."""
    stream = io.StringIO()
    monkeypatch.setattr(logs, "_settings", logs._settings)
    logs.configure("info", json=True, stream=stream)
    yield stream


def events(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def candidate(source: str = "x = 1", strategy: str = "user") -> kopt.Candidate:
    return kopt.Candidate(language="cpp", source=source, entry="f", strategy=strategy)


def propose(hooks: Hooks) -> list[Proposed]:
    return hooks.kopt_propose(ANY, ANY, ANY, None, (), ANY)


def build(hooks: Hooks) -> object:
    return hooks.kopt_build(ANY, candidate(), ANY)


def verdict(name: str) -> kopt.Verification:
    return kopt.Verification(
        verifier=name,
        status=kopt.Status.CORRECT,
        stages=(kopt.StageResult(stage="values", outcome="pass"),),
    )


class Proposer:
    """Yields its sources, then raises ``error`` if it has one."""

    def __init__(self, *sources: str, error: BaseException | None = None) -> None:
        self.sources = sources
        self.error = error

    @kopt.hookimpl
    def kopt_propose(self, parent: kopt.Evaluation | None) -> Iterator[kopt.Candidate]:
        assert parent is None
        for source in self.sources:
            yield candidate(source)
        if self.error:
            raise self.error


class Verifier:
    def __init__(self, name: str = "fine", error: BaseException | None = None) -> None:
        self.name = name
        self.error = error

    @kopt.hookimpl
    def kopt_verify(self) -> kopt.Verification:
        if self.error:
            raise self.error
        return verdict(self.name)


class Builder:
    def __init__(self, answer: object = None, error: BaseException | None = None) -> None:
        self.answer = answer
        self.error = error
        self.asked = 0

    @kopt.hookimpl
    def kopt_build(self, candidate: kopt.Candidate) -> object:
        self.asked += 1
        if self.error:
            raise self.error
        return self.answer

    @kopt.hookimpl
    def kopt_open_reference(self, device: str) -> object:
        return self.kopt_build(None)  # type: ignore[arg-type]


class Searcher:
    def __init__(self, reason: object) -> None:
        self.reason = reason

    @kopt.hookimpl
    def kopt_stop(self) -> object:
        return self.reason


class Format:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    @kopt.hookimpl
    def kopt_load_problem(self, path: Path) -> None:
        if self.error:
            raise self.error


def strategies(*instances: object) -> Hooks:
    return Hooks.load([("strategy", instance, {}) for instance in instances])


def hooks_of(role: str, *instances: object) -> Hooks:
    return Hooks.load([], [(role, instance) for instance in instances])


def specifications() -> dict[str, Any]:
    return {n: f for n, f in vars(hookspecs).items() if hasattr(f, "kopt_spec")}


def test_one_method_per_hook_with_the_arguments_of_its_specification() -> None:
    methods = {n: f for n, f in vars(Hooks).items() if n.startswith("kopt_")}
    assert list(methods) == list(specifications())
    for name, specification in specifications().items():
        _, *arguments = inspect.signature(methods[name]).parameters.values()
        wanted = inspect.signature(specification).parameters.values()
        assert [(a.name, a.annotation) for a in arguments] == [
            (w.name, w.annotation) for w in wanted
        ]


def test_every_hook_can_be_called_with_no_plugin_there() -> None:
    hooks = Hooks([])
    for name, specification in specifications().items():
        arguments = dict.fromkeys(inspect.signature(specification).parameters)
        assert getattr(hooks, name)(**arguments) in (None, [])


def test_every_hook_reaches_a_plugin_with_its_arguments() -> None:
    seen: dict[str, dict[str, object]] = {}

    def implementation(hook: str) -> Any:
        names = list(inspect.signature(specifications()[hook]).parameters)
        space: dict[str, Any] = {"seen": seen}
        fields = ", ".join(f"{n!r}: {n}" for n in names)
        code = f"def {hook}({', '.join(['self', *names])}):\n    seen[{hook!r}] = {{{fields}}}\n"
        exec(code, space)
        return kopt.hookimpl(space[hook])

    everything = type("Everything", (), {hook: implementation(hook) for hook in specifications()})
    hooks = hooks_of("strategy", everything())
    for hook in specifications():
        arguments = {n: object() for n in inspect.signature(specifications()[hook]).parameters}
        getattr(hooks, hook)(**arguments)
        assert seen[hook] == arguments
    assert hooks.failures == []


def test_proposals_come_in_the_users_order_with_their_plugin() -> None:
    class Second(Proposer):
        pass

    proposed = propose(strategies(Second("c"), Proposer("a", "b")))
    assert [(p.plugin, p.candidate.source) for p in proposed] == [
        ("second", "c"),
        ("proposer", "a"),
        ("proposer", "b"),
    ]


def test_names_and_instances_keep_their_order(distributions: Any) -> None:
    distributions.add(
        "acme-kopt",
        plugins={"strategy.unroll": "unroll_mod:Unroll"},
        modules={
            "unroll_mod": "import kopt\nclass Unroll:\n    @kopt.hookimpl\n"
            "    def kopt_propose(self):\n"
            "        return [kopt.Candidate(language='cpp', source='u', entry='f')]\n"
        },
    )
    refs: list[Reference] = [("strategy", Proposer("a"), {}), ("strategy", "unroll", {})]
    assert [p.candidate.source for p in propose(Hooks.load(refs))] == ["a", "u"]
    assert [p.candidate.source for p in propose(Hooks.load(refs[::-1]))] == ["u", "a"]


def test_a_first_result_ends_the_asking() -> None:
    late = Builder("late")
    hooks = hooks_of("backend", Builder(None), Builder("answer"), late)
    assert build(hooks) == "answer"
    assert late.asked == 0


def test_a_failing_strategy_costs_no_other_its_proposals(log: io.StringIO) -> None:
    hooks = strategies(Proposer("lost", error=ValueError("boom")), Proposer("kept"))
    told: list[PluginFailure] = []
    hooks.on_failure = told.append
    assert [p.candidate.source for p in propose(hooks)] == ["kept"]
    [failure] = hooks.failures
    assert told == [failure]
    assert (failure.role, failure.plugin, failure.hook) == ("strategy", "proposer", "kopt_propose")
    assert failure.error == "ValueError: boom"
    assert "in kopt_propose" in failure.traceback
    [event] = events(log)
    assert event["event"] == "plugin_failed"
    assert event["error"] == "ValueError: boom"
    assert event["plugin"] == "proposer"
    assert event["version"] == f"an instance of {__name__}:Proposer"


def test_exit_and_assertions_are_failures_but_an_interrupt_is_not() -> None:
    hooks = strategies(Proposer(error=SystemExit(0)), Proposer(error=AssertionError()))
    assert propose(hooks) == []
    assert [f.error for f in hooks.failures] == ["SystemExit: 0", "AssertionError"]
    with pytest.raises(KeyboardInterrupt):
        propose(strategies(Proposer(error=KeyboardInterrupt())))


@pytest.mark.parametrize("answer", ["source", [1], 7, candidate()])
def test_an_answer_of_the_wrong_type_is_a_failure(answer: object) -> None:
    class Odd:
        @kopt.hookimpl
        def kopt_propose(self) -> object:
            return answer

    hooks = strategies(Odd(), Proposer("kept"))
    assert [p.candidate.source for p in propose(hooks)] == ["kept"]
    assert hooks.failures[0].error.startswith("TypeError: ")


def test_a_wrong_type_from_a_first_result_hook_asks_the_next() -> None:
    hooks = hooks_of("search", Searcher(3), Searcher("enough"))
    assert hooks.kopt_stop(ANY, ANY, ANY) == "enough"
    assert hooks.failures[0].error == "TypeError: answered with int, not str"


def test_three_failures_in_a_row_retire_a_plugin_loudly(log: io.StringIO) -> None:
    bad = Proposer(error=ValueError("boom"))
    hooks = strategies(bad, Proposer("kept"))
    for _ in range(FAILURES_TO_RETIRE):
        assert len(propose(hooks)) == 1
    assert hooks.retired == {"strategy.proposer"}
    assert [f.retired for f in hooks.failures] == [False, False, True]
    assert events(log)[-1]["event"] == "plugin_retired"
    assert events(log)[-1]["level"] == "error"
    bad.error = None
    bad.sources = ("healed",)
    assert [p.candidate.source for p in propose(hooks)] == ["kept"]
    assert len(hooks.failures) == FAILURES_TO_RETIRE


def test_success_resets_the_count() -> None:
    plugin = Proposer("a")
    hooks = strategies(plugin)
    for error in (ValueError(), ValueError(), None, ValueError(), ValueError(), None):
        plugin.error = error
        propose(hooks)
    assert hooks.retired == set()
    assert len(hooks.failures) == 4


def test_success_of_another_hook_does_not() -> None:
    class Half(Proposer):
        @kopt.hookimpl
        def kopt_run_started(self) -> None: ...

    hooks = strategies(Half(error=ValueError()))
    for _ in range(FAILURES_TO_RETIRE):
        propose(hooks)
        hooks.kopt_run_started(ANY)
    assert hooks.retired == {"strategy.half"}


def test_observers_cannot_hurt() -> None:
    class Observer:
        @kopt.hookimpl
        def kopt_candidate_evaluated(self, evaluation: kopt.Evaluation) -> None:
            raise RuntimeError("disk full")

    hooks = hooks_of("exporter", Observer())
    hooks.kopt_candidate_evaluated(ANY)
    assert hooks.failures[0].error == "RuntimeError: disk full"


CRASHED = CandidateError(kopt.Status.CRASHED, "signal 11")


@pytest.mark.parametrize("error", [CRASHED, ProblemError("no inputs"), WorkerError("judge died")])
def test_answers_of_build_and_verify_pass_through(error: KoptError) -> None:
    builders = hooks_of("backend", Builder(error=error), Builder("late"))
    verifiers = hooks_of("verifier", Verifier(), Verifier(error=error))
    for _ in range(FAILURES_TO_RETIRE + 1):
        with pytest.raises(type(error)) as caught:
            builders.kopt_build(ANY, candidate(), ANY)
        assert caught.value is error
        with pytest.raises(type(error)) as caught:
            verifiers.kopt_verify(ANY)
        assert caught.value is error
    assert builders.failures == verifiers.failures == []
    assert builders.retired == verifiers.retired == set()


def test_answers_of_opening_and_loading_pass_through() -> None:
    for error in (ProblemError("bad"), DeviceError("no GPU")):
        with pytest.raises(type(error)):
            hooks_of("backend", Builder(error=error)).kopt_open_reference(ANY, "cuda", Alone())
    with pytest.raises(ProblemError, match="bad"):
        hooks_of("format", Format(ProblemError("bad"))).kopt_load_problem(Path())


def test_a_candidate_error_of_a_strategy_is_its_failure() -> None:
    hooks = strategies(Proposer(error=CRASHED))
    assert propose(hooks) == []
    assert len(hooks.failures) == 1


def test_every_verdict_is_returned() -> None:
    hooks = hooks_of("verifier", Verifier("a"), Verifier("b"))
    assert [v.verifier for v in hooks.kopt_verify(ANY)] == ["a", "b"]


def test_a_failed_verifier_is_never_a_pass() -> None:
    broken = Verifier(error=IndexError("out of range"))
    hooks = hooks_of("verifier", broken, Verifier("b"))
    for _ in range(FAILURES_TO_RETIRE):
        with pytest.raises(WorkerError) as caught:
            hooks.kopt_verify(ANY)
        assert "verifier 'verifier' (an instance of" in str(caught.value)
        assert "failed in kopt_verify: IndexError: out of range" in str(caught.value)
        assert isinstance(caught.value.__cause__, IndexError)
    assert hooks.retired == {"verifier.verifier"}
    with pytest.raises(WorkerError, match="is retired after 3 failures"):
        hooks.kopt_verify(ANY)


def test_a_failed_backend_is_named_unless_another_answers() -> None:
    hooks = hooks_of("backend", Builder(error=KeyError("arch")), Builder(None))
    with pytest.raises(WorkerError, match=r"failed in kopt_build: KeyError: 'arch'; report it"):
        hooks.kopt_build(ANY, candidate(), ANY)
    with pytest.raises(WorkerError, match="no trustworthy answer to kopt_open_reference"):
        hooks.kopt_open_reference(ANY, "cpu", Alone())
    hooks = hooks_of("backend", Builder(error=KeyError("arch")), Builder("built"))
    assert build(hooks) == "built"
    assert len(hooks.failures) == 1


def test_a_failed_format_is_not_an_unknown_format() -> None:
    assert hooks_of("format", Format()).kopt_load_problem(Path()) is None
    with pytest.raises(PluginError, match=r"format 'format' .* failed in kopt_load_problem: Unico"):
        error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")
        hooks_of("format", Format(error)).kopt_load_problem(Path())


class Checker:
    def __init__(self, row: kopt.Check | None = None) -> None:
        self.row = row

    @kopt.hookimpl
    def kopt_check(self) -> Iterator[kopt.Check]:
        if self.row is None:
            raise OSError("no driver")
        yield self.row


OK = kopt.Check(name="compiler", state="ok")
OLD = kopt.Check(name="compiler", state="warn", detail="g++ 9 is old", fix="install g++ 13")
FORBIDDEN = kopt.Check(name="counters", state="fail", detail="ERR_NVGPUCTRPERM", fix="see docs")


def test_a_check_that_raises_gets_a_row() -> None:
    rows = hooks_of("backend", Checker(), Checker(OK)).kopt_check()
    assert rows[0] == OK
    assert (rows[1].name, rows[1].state) == ("backend checker", "fail")
    assert "OSError: no driver" in rows[1].detail
    assert rows[1].fix


def test_a_plugin_that_cannot_work_here_stops_a_run() -> None:
    hooks_of("profiler", Checker(OK), Checker(OLD)).ensure_available()
    with pytest.raises(PluginUnavailableError) as caught:
        hooks_of("profiler", Checker(OK), Checker(FORBIDDEN), Checker()).ensure_available()
    first, second = str(caught.value).split(" | ")
    label = f"profiler 'checker' (an instance of {__name__}:Checker): "
    assert first == f"{label}ERR_NVGPUCTRPERM; see docs"
    assert second.startswith(f"{label}its check raised OSError: no driver; report it")


def test_a_completion() -> None:
    class Echo:
        @kopt.hookimpl
        def kopt_complete(self, request: CompletionRequest) -> Completion:
            return Completion(text=request.messages[0].content, model="echo")

    request = CompletionRequest(messages=(Message(role="user", content="hi"),))
    answer = hooks_of("llm", Echo()).kopt_complete(request)
    assert answer is not None
    assert answer.text == "hi"


def test_an_empty_selection_is_an_answer() -> None:
    class Done:
        @kopt.hookimpl
        def kopt_select(self) -> Iterator[kopt.Evaluation]:
            yield from ()

    assert hooks_of("search", Done()).kopt_select(ANY, 1) == []
    assert Hooks([]).kopt_select(ANY, 1) is None


BACKEND = """
import kopt

class Backend:
    class Options(kopt.Options):
        flags: tuple[str, ...] = ()

    def __init__(self, options):
        self.options = options

    @kopt.hookimpl
    def kopt_build(self):
        return self.options.flags
"""


def acme(distributions: Any) -> None:
    distributions.add(
        "acme-kopt",
        "1.2.0",
        plugins={"backend.acme": "backend_mod:Backend"},
        modules={"backend_mod": BACKEND},
    )


def test_a_worker_builds_the_same_plugins_from_references(distributions: Any) -> None:
    acme(distributions)
    here = Hooks.load([("backend", "acme", {"flags": ["-O3"]})], [("strategy", Proposer("a"))])
    references = pickle.loads(pickle.dumps(here.references("backend", "verifier")))
    there = Hooks.load(references)
    assert build(there) == ("-O3",)
    assert there.sources() == {"backend.acme": "acme-kopt 1.2.0"}


def test_an_instance_without_a_name_cannot_go_to_a_worker() -> None:
    hooks = hooks_of("backend", Builder())
    with pytest.raises(ConfigError, match=r"an entry point in the group kopt\.backend and"):
        hooks.references("backend")


def test_named_twice(distributions: Any) -> None:
    acme(distributions)
    same: list[Reference] = [("backend", "acme", {}), ("backend", "acme-kopt:acme", {})]
    assert len(Hooks.load(same).plugins) == 1
    with pytest.raises(ConfigError, match="named twice with different options; name it once"):
        Hooks.load([("backend", "acme", {}), ("backend", "acme", {"flags": ["-g"]})])


def test_options_beside_an_instance() -> None:
    with pytest.raises(ConfigError, match=r"options \(x\); put them into the instance"):
        Hooks.load([("strategy", Proposer(), {"x": 1})])


def test_two_instances_of_one_class_have_keys_of_their_own() -> None:
    hooks = strategies(Proposer("a"), Proposer("b", error=ValueError()))
    assert list(hooks.sources()) == ["strategy.proposer", "strategy.proposer-2"]
    for _ in range(FAILURES_TO_RETIRE):
        propose(hooks)
    assert hooks.retired == {"strategy.proposer-2"}


def test_an_unknown_name_stops_before_anything_is_loaded(distributions: Any) -> None:
    with pytest.raises(UnknownPluginError):
        Hooks.load([("strategy", "no-such-strategy", {})])
