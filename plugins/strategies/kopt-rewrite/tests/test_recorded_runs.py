"""The mailbox's recorded runs on an H200, run again from beginning to end where there is no GPU.

Everything that decides is as ever: session, search, strategies, replies, and the verdict on each
kernel, here in Triton's interpreter. What only the GPU could tell is what it told then: the device,
times of baselines and candidates, and the diagnoses.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kopt
from kopt.errors import CandidateError
from kopt.evaluator import Baseline, Opening
from kopt.hooks import Hooks
from kopt.model.budget import Budget
from kopt.model.candidate import Candidate
from kopt.model.completion import CompletionRequest
from kopt.model.device import Device, Target
from kopt.model.diagnosis import Diagnosis
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.problem import Problem, Signature
from kopt.model.run import Run, RunConfig
from kopt.model.verification import Status
from kopt.optimize import load_problem
from kopt.runs.completions import CompletionStore, read_exchange
from kopt.runs.events import Confirmed, Diagnosed, Evaluated, PluginFailed, ReplyRead, Spent
from kopt.runs.journal import read_journal
from kopt.runs.sources import source_id
from kopt.runs.store import RunFolder
from kopt.session import Session
from kopt.testing.trials import Trials
from kopt_rewrite import Rewrite

_spec = importlib.util.spec_from_file_location("prompts_read", Path(__file__).parent / "prompts_read.py")  # fmt: skip
assert _spec and _spec.loader
prompts_read = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(prompts_read)

signature_by_shapes = pytest.importorskip("kopt_torch.shapes").signature_by_shapes
pytest.importorskip("kopt_triton.interpreter")
pytest.importorskip("kopt_replay")
pytest.importorskip("kopt_autotune")
pytest.importorskip("kopt_search")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("recorded-runs")]

HERE = Path(__file__).parent
RESULTS = HERE.parents[3] / "benchmarks" / "results" / "h200-mailbox.json"
BACKENDS = (("backend", "kopt-torch:torch", {}), ("backend", "kopt-triton:triton", {}))
SIZES = {
    "gated_recurrence": {"batch": 1, "time": 19, "channels": 40},
    "median_filter": {"images": 1, "channels": 2, "height": 9, "width": 37},
}
"""For the verdicts here: blocks of the recorded sizes are as slow as ever in the interpreter."""
FOR_A_GPU_ALONE = {
    "gated_recurrence": ["Cheaper sigmoid"], "median_filter": ["start the prologue early by programmatic dependent launch"],
}  # fmt: skip
"""Ideas that take inline assembly or a dependent launch, and no interpreter: their verdicts are those of then."""
RUNS = {run["problem"]["name"]: run for run in json.loads(RESULTS.read_text())["runs"]}

Key = tuple[str, tuple[tuple[str, object], ...]]


class Recorded:
    """An evaluator that verifies here, and knows how long each kernel took there."""

    def __init__(self, run: dict[str, Any], signature: Signature, trials: Trials) -> None:
        self.run, self.signature, self.trials = run, signature, trials
        self.not_judged: list[str] = []
        """Ideas of kernels that the interpreter cannot run."""
        self.verifiers = Hooks.load([("verifier", "verify", {})])
        self.device = record(Device, run["device"])
        self.evaluations = {key_of(e["candidate"]): e for e in run["evaluations"]}
        self.confirmed = {key_of(e["candidate"]): e for e in run["confirmed"]}

    def open(self) -> Opening:
        baselines = tuple(
            record(Baseline, {**each, "candidate": sourced(each["candidate"]),
                              "evaluation": evaluation_of(each["evaluation"])})
            for each in self.run["baselines"]
        )  # fmt: skip
        fastest = min(baselines, key=lambda each: each.measurement.latency_ms)
        [workload] = self.signature.workloads
        return Opening(
            device=self.device, signature=self.signature, baselines=baselines, fastest=fastest.name,
            noise=fastest.measurement.noise, copy_ms={workload: self.run["copy_ms"]},
        )  # fmt: skip

    def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        for candidate in candidates:
            yield self._judged(candidate, self.evaluations)

    def confirm(self, candidate: Candidate) -> Evaluation:
        return self._judged(candidate, self.confirmed)

    def _judged(self, candidate: Candidate, there: dict[Key, Any]) -> Evaluation:
        """Return the verdict of here with the times of there; a kernel that is new has none."""
        then = record(Evaluation, evaluation_of(there[key_of(candidate.to_json())]))
        try:
            [verdict] = self.verifiers.kopt_verify(self.trials.of(candidate))
        except CandidateError as error:
            if error.status is not Status.UNSUPPORTED:
                raise
            self.not_judged.append(candidate.idea.partition(":")[0])
            return then.model_copy(update={"candidate": candidate})
        found = Evaluation(candidate=candidate, status=verdict.status, verifications=(verdict,))
        if verdict.status is not Status.CORRECT:
            return found
        return found.model_copy(update={"measurement": then.measurement, "build": then.build})

    def probe(self, candidate: Candidate) -> None:
        """No profiler asks for it."""

    def close(self) -> None:
        pass


class Remembers:
    """A judge that says what the judges said then."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.said = {each["parent"]: each["diagnoses"] for each in run["diagnoses"]}

    @kopt.hookimpl
    def kopt_judge(self, evaluation: Evaluation) -> Diagnosis:
        [diagnosis] = self.said[evaluation.id]
        return record(Diagnosis, diagnosis)


def record(kind: Any, data: Any) -> Any:
    return kind.model_validate_json(json.dumps(data))


def sourced(candidate: dict[str, Any]) -> dict[str, Any]:
    """A recorded candidate, with the only thing that is known of its source in the source's place."""
    return {
        **{k: v for k, v in candidate.items() if k != "source_id"},
        "source": candidate["source_id"],
    }


def evaluation_of(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "candidate": sourced(data["candidate"])}


def key_of(candidate: dict[str, Any]) -> Key:
    """What tells one kernel with its knobs from others: its source, and what differs from defaults."""
    identity = candidate.get("source_id") or source_id(candidate["source"])
    return identity, tuple(sorted(candidate["values"].items()))


def small(problem: Problem) -> Problem:
    [workload] = problem.workloads
    smaller = workload.model_copy(update={"sizes": SIZES[problem.name]})
    return problem.model_copy(update={"workloads": (smaller,)})


class Done(NamedTuple):
    """A run that has ended, and what it was recorded as."""

    name: str
    then: dict[str, Any]
    run: Run
    not_judged: list[str]
    events: list[Any]
    requests: list[CompletionRequest]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def answer_first_kernels(folder: RunFolder, recorded: Path, opening: Opening, answers: Any) -> None:
    """Put the first kernels' answers into the run: it goes on as the recorded one did.

    There too all three were there when it was resumed; which arrives first is no matter then.
    """
    llm = answers(lambda request: "")
    target = Target(language="triton", device=opening.device)
    list(Rewrite().kopt_propose(
        folder.file.problem, opening.signature, target, None, [], History(), llm,
    ))  # fmt: skip
    exchanges = [read_exchange(path) for path in recorded.glob("*.json")]
    first = {e.request.sample: e for e in exchanges if e.request.purpose.startswith("first kernel")}
    store = CompletionStore(folder.path / "completions")
    for request in llm.asked:
        if len(request.messages) == 2:  # the others follow up what the empty answers lacked
            exchange = first[request.sample]
            store.keep(request, exchange.completion, exchange.asked)
    assert len(list((folder.path / "completions").glob("*.json"))) == len(first) == 3


@pytest.fixture(scope="module", params=sorted(RUNS))
def done(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    answers: Callable[..., Any],
) -> Done:
    name = request.param
    home, recorded = tmp_path_factory.mktemp(name), HERE / "recorded" / name
    problem = load_problem(HERE / name)
    options: dict[str, dict[str, object]] = {
        "search.beam": {"width": 1},
        "llm.replay": {"folder": str(recorded), "match": "order"},
    }
    config = RunConfig(
        backend="triton", strategies=("rewrite", "autotune"), search="beam", verifiers=("verify",),
        judges=("instance",), llm="replay", device="cuda", budget=Budget(trials=RUNS[name]["budget"]["trials"]), options=options,
        build_workers=16,
    )  # fmt: skip
    hooks = Hooks.load(
        [("backend", "triton", {}), ("strategy", "rewrite", {}), ("strategy", "autotune", {}),
         ("search", "beam", options["search.beam"]), ("llm", "replay", options["llm.replay"])],
        [("judge", Remembers(RUNS[name]))],
    )  # fmt: skip
    signature = signature_by_shapes(problem)  # at the recorded sizes it runs for half a minute
    folder = RunFolder.create(home, problem, config)
    with (
        Trials(small(problem), home / "builds", backends=BACKENDS, purpose="triton") as trials,
        folder.writing() as journal,
    ):
        evaluator = Recorded(RUNS[name], signature, trials)
        answer_first_kernels(folder, recorded, evaluator.open(), answers)
        run = Session(folder, journal, hooks, evaluator).run()
    events = [entry.event for entry in read_journal(folder.path).entries]
    asked = [read_exchange(path).request for path in (folder.path / "completions").glob("*.json")]
    return Done(name, RUNS[name], run, evaluator.not_judged, events, asked)


def test_it_goes_the_same_way_to_the_same_end(done: Done) -> None:
    """The same kernels, all right, in the same order of rounds, to the same verdict."""
    assert (done.run.status, done.run.reason) == (done.then["status"], done.then["reason"])
    found = [event.evaluation for event in done.of(Evaluated)]
    assert {key_of(e.candidate.to_json()) for e in found} == {
        key_of(e["candidate"]) for e in done.then["evaluations"]
    }
    ideas = {e.candidate.idea: e.candidate.parents for e in found}
    assert ideas == {
        e["candidate"]["idea"]: tuple(e["candidate"]["parents"]) for e in done.then["evaluations"]
    }
    assert {e.status for e in found} == {Status.CORRECT}
    assert sorted(done.not_judged) == FOR_A_GPU_ALONE[done.name]
    assert all(e.verifications for e in found)
    assert done.of(PluginFailed) == []


def test_the_same_kernel_is_kept(done: Done) -> None:
    """What is confirmed, in the same order, and the winner where there is one."""
    assert done.run.best is not None
    found = [key_of(event.evaluation.candidate.to_json()) for event in done.of(Confirmed)]
    assert found == [key_of(e["candidate"]) for e in done.then["confirmed"]]
    assert key_of(done.run.best.candidate.to_json()) in found


def test_the_answers_come_from_the_replay_and_cost_nothing(done: Done) -> None:
    """First kernels were there already; the rest is asked for, and is all of use."""
    spent = done.of(Spent)
    recorded = [
        read_exchange(path).request for path in (HERE / "recorded" / done.name).glob("*.json")
    ]
    assert sorted(event.role for event in spent) == sorted(
        each.role for each in recorded if not each.purpose.startswith("first kernel")
    )
    assert {event.role for event in spent} >= {"analysis", "code"}
    assert {(event.outcome, event.model, event.usd) for event in spent} == {
        ("answered", "replay of mailbox", 0.0)
    }
    read = done.of(ReplyRead)
    assert {event.outcome for event in read} >= {"ideas", "module"}
    assert all(event.usable for event in read)
    assert len({event.request for event in read}) == len(recorded)
    assert [[each.to_json() for each in event.diagnoses] for event in done.of(Diagnosed)] == [
        each["diagnoses"] for each in done.then["diagnoses"]
    ]


SECTIONS = (
    "The reference", "Shapes and dtypes", "The work", "The device", "The kernel",
    "Its measurements", "Diagnosis by the judge roofline", "The idea",
    "What was tried, and what came of it",
)  # fmt: skip
"""Those with what the run found out."""


LEFT_OUT = (
    "1. at-bound (about ",  # of less than 2 % nothing is said
    "- a plain copy of as many bytes",  # it says now that its launch is included
)
"""How lines begin that have other words now."""


def test_what_is_asked_says_what_it_said_then(done: Done) -> None:
    """All that was known then is in the prompts of now, whole where it was cut off then."""
    recorded = [
        read_exchange(path).request for path in (HERE / "recorded" / done.name).glob("*.json")
    ]
    then = {asked_for(each): facts_in(each) for each in recorded}
    now = {asked_for(each): facts_in(each) for each in done.requests}
    assert now.keys() == then.keys()
    assert len(then) == len(recorded)
    for asked, facts in then.items():
        assert now[asked].keys() == facts.keys(), asked
        for title, lines in facts.items():
            missing = [each for each in lines if not told(each, now[asked][title])]
            assert not missing, (asked, title, now[asked][title])
    assert any("Its measurements" in facts for facts in then.values())
    for request in done.requests:
        prompts_read.check(request.messages[-1].content)


def asked_for(request: CompletionRequest) -> tuple[object, ...]:
    """Return what tells a request from the others of its run: with the kernel that it is about."""
    kernel = tuple(facts_in(request).get("The kernel", ()))
    return request.role, request.sample, request.purpose, kernel


def told(line: str, lines: list[str]) -> bool:
    """Whether a line of then is among those of now: the same, or what it is the beginning of."""
    if line in lines or f"{line} (the kernel above)" in lines or line.startswith(LEFT_OUT):
        return True
    begins, cut, _ = line.partition("…")
    return bool(cut) and any(each.startswith(begins.rstrip()) for each in lines)


def facts_in(request: CompletionRequest) -> dict[str, list[str]]:
    """Return the lines of each section with facts."""
    sections = prompts_read.outline(request.messages[-1].content)
    return {title: text.split("\n") for title, text in sections if title in SECTIONS}
