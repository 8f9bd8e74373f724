"""When a run ends, and how many candidates are confirmed: real folders, a scripted device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest

import kopt
from kopt.evaluator import Baseline, Opening
from kopt.hooks import Hooks
from kopt.model.budget import Budget
from kopt.model.candidate import Candidate
from kopt.model.device import Device as DeviceRecord
from kopt.model.device import Target
from kopt.model.diagnosis import Profile, metrics_of
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.run import Run, RunConfig
from kopt.reporter import Silent
from kopt.runs.events import Diagnosed
from kopt.runs.journal import read_journal
from kopt.runs.store import RunFolder
from kopt.session import Session
from kopt.testing import problems, records
from kopt.testing.diagnosing import NoTool


def candidate(number: int) -> Candidate:
    return Candidate(language="cpp", source=f"int f = {number};\n", entry="f", idea=str(number))


class Proposes:
    """All candidates in the first round."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    @kopt.hookimpl
    def kopt_propose(self, target: Target, parent: Evaluation | None) -> list[Candidate]:
        self.target = target
        return [candidate(number) for number in self.numbers] if parent is None else []


class Selects:
    """Selects nothing; notes the limits that it was told, and stops where one is below 1.5."""

    def __init__(self) -> None:
        self.limits: list[float | None] = []

    @kopt.hookimpl
    def kopt_select(self) -> list[Evaluation]:
        return []

    @kopt.hookimpl
    def kopt_stop(self, history: History) -> str | None:
        self.limits.append(history.copy_speedup)
        return "enough" if history.copy_speedup is not None and history.copy_speedup < 1.5 else None


class Device:
    """An evaluator that knows each candidate's speedup in the search and in the confirmation."""

    def __init__(
        self,
        speedups: Mapping[int, tuple[float, float]],
        opening_seconds: float = 0.0,
        on: DeviceRecord | None = None,
        copy_ms: float = 1.0,
    ) -> None:
        self.speedups, self.opening_seconds = speedups, opening_seconds
        self.device, self.copy_ms = on or records.cpu(), copy_ms
        self.confirmed: list[int] = []

    def open(self) -> Opening:
        time.sleep(self.opening_seconds)
        baseline = Baseline(
            name=records.BASELINE, candidate=candidate(0),
            evaluation=records.measured(candidate(0), 1.0),
        )  # fmt: skip
        return Opening(
            device=self.device, signature=problems.vector_add_signature(), baselines=(baseline,),
            fastest=records.BASELINE, noise=0.01, copy_ms={"default": self.copy_ms},
        )  # fmt: skip

    def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        for each in candidates:
            yield records.measured(each, self.speedups[int(each.idea)][0])

    def confirm(self, chosen: Candidate) -> Evaluation:
        number = int(chosen.idea)
        self.confirmed.append(number)
        speedup = self.speedups[number][1]
        return records.measured(chosen, speedup) if speedup else records.failed(chosen)

    def probe(self, chosen: Candidate) -> NoTool:
        return NoTool()

    def close(self) -> None:
        pass


class Profiler:
    """Knows one metric of each candidate."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @kopt.hookimpl
    def kopt_profile(self, evaluation: Evaluation) -> Profile:
        self.asked.append(evaluation.candidate.idea)
        metrics = metrics_of({"kernel_launches": len(self.asked)})
        return Profile(profiler="test", candidate=evaluation.id, metrics=metrics)


def run(
    folder: Path,
    device: Device,
    budget: Budget | None = None,
    search: Selects | None = None,
    strategy: Proposes | None = None,
    beside: tuple[str, ...] = (),
    confirm: Literal["best", "faster"] = "best",
    more: Sequence[tuple[str, object]] = (),
) -> Run:
    config = RunConfig(
        backend="cpp", beside=beside, strategies=("instance",), search="instance", verifiers=("none",),
        device="cpu", budget=budget or Budget(), build_workers=2, confirm=confirm,
    )  # fmt: skip
    made = RunFolder.create(folder, problems.vector_add(), config)
    hooks = Hooks.load(
        [],
        instances=[
            ("strategy", strategy or Proposes(sorted(device.speedups))),
            ("search", search or Selects()),
            *more,
        ],
    )
    with made.writing() as journal:
        return Session(made, journal, hooks, device).run()


@pytest.mark.parametrize(
    ("speedups", "confirmed", "status"),
    [
        # It holds and is an improvement: done.
        ({1: (2.0, 1.9), 2: (1.5, 1.5)}, [1], "improved"),
        # It holds but is none after all; another seemed to be one too.
        ({1: (1.2, 1.0), 2: (1.1, 1.1)}, [1, 2], "improved"),
        # Nothing seemed to be an improvement: one is confirmed, to say how close it came.
        ({1: (1.0, 1.0), 2: (0.99, 0.99), 3: (0.9, 0.9)}, [1], "not-improved"),
        # It does not hold: whoever comes next is tried, an improvement or not.
        ({1: (2.0, 0.0), 2: (0.9, 0.9), 3: (0.8, 0.8)}, [1, 2], "not-improved"),
        ({1: (2.0, 0.0), 2: (1.5, 0.0), 3: (1.4, 0.0), 4: (1.3, 1.3)}, [1, 2, 3], "not-improved"),
    ],
)
def test_slower_ones_are_confirmed_only_where_that_may_help(tmp_path, speedups, confirmed, status):
    device = Device(speedups)
    assert run(tmp_path, device).status == status
    assert device.confirmed == confirmed


@pytest.mark.parametrize(
    ("speedups", "confirmed", "status", "words"),
    [
        ({1: (2.0, 1.9)}, [1], "improved", ""),
        ({1: (1.0, 1.0)}, [1], "not-improved", ""),  # it could be faster
        ({1: (0.9, 0.9)}, [], "not-improved", "was slower in the search, and is not confirmed"),
        ({1: (2.0, 0.0), 2: (0.9, 0.9)}, [1], "not-improved", "not confirmed: wrong"),
    ],
)
def test_what_was_slower_in_the_search_may_be_left_unconfirmed(
    tmp_path, speedups, confirmed, status, words
):
    device = Device(speedups)
    found = run(tmp_path, device, confirm="faster")
    assert (found.status, device.confirmed) == (status, confirmed)
    assert words in found.reason
    assert (found.best is None) == (
        (status == "not-improved" and confirmed != [1]) or "wrong" in words
    )


def test_an_opening_that_takes_all_the_time_still_leaves_a_first_look(tmp_path):
    device = Device({1: (2.0, 2.0), 2: (1.5, 1.5), 3: (3.0, 3.0)}, opening_seconds=0.1)
    found = run(tmp_path, device, Budget(seconds=0.05))
    assert found.status == "improved"
    assert found.trials == {"correct": 2}  # as many as are built at a time, and no more
    assert "0.05 seconds used" in found.reason


def test_other_budgets_hold_from_the_beginning(tmp_path):
    found = run(tmp_path, Device({1: (2.0, 2.0), 2: (1.5, 1.5)}), Budget(trials=1))
    assert found.trials == {"correct": 1}


def test_why_nothing_was_confirmed_is_in_the_reason(tmp_path):
    found = run(tmp_path, Device({1: (2.0, 0.0), 2: (1.5, 0.0), 3: (1.4, 0.0)}))
    assert "; the fastest 3 were not confirmed: wrong: " in found.reason
    held = run(tmp_path, Device({1: (2.0, 0.0), 2: (0.9, 0.9)}))
    assert "not confirmed" not in held.reason, "one of them was"


def test_whoever_watches_is_told_of_each_that_did_not_hold(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Silent, "unconfirmed", lambda _, each: told.append(each.status))
    found = run(tmp_path, Device({1: (2.0, 0.0), 2: (1.5, 1.5)}))
    assert found.status == "improved"
    assert told == ["wrong"]


def test_a_policy_learns_how_near_a_copy_is_and_may_end_before_anything_is_evaluated(tmp_path):
    small_cache = records.gpu().model_copy(update={"cache_bytes": 1 << 10})
    search, speedups = Selects(), {1: (2.0, 2.0)}
    found = run(tmp_path, Device(speedups, on=small_cache, copy_ms=0.8), search=search)
    assert (found.status, found.reason, found.trials) == ("not-improved", "enough", {})
    assert search.limits == [pytest.approx(1.25)]


@pytest.mark.parametrize("device", [records.gpu(), records.cpu()], ids=["fits a cache", "a CPU"])
def test_no_limit_is_told_where_a_copy_says_little(tmp_path, device):
    search = Selects()
    found = run(tmp_path, Device({1: (2.0, 2.0)}, on=device, copy_ms=0.8), search=search)
    assert found.status == "improved"
    assert set(search.limits) == {None}


def test_strategies_are_told_every_language_of_the_run(tmp_path):
    strategy = Proposes([1])
    run(tmp_path, Device({1: (2.0, 2.0)}), strategy=strategy, beside=("kopt-acme:acme",))
    assert (strategy.target.language, strategy.target.beside) == ("cpp", ("acme",))


class Watches(Proposes):
    """Predicts a metric of every second candidate."""

    @kopt.hookimpl
    def kopt_propose(self, target: Target, parent: Evaluation | None) -> list[Candidate]:
        return [
            candidate(n).model_copy(update={"watched": ("kernel_launches",) if n % 2 else ()})
            for n in self.numbers if parent is None
        ]  # fmt: skip


def test_what_was_predicted_is_profiled_once_it_is_right(tmp_path):
    profiler, device = Profiler(), Device({1: (1.5, 1.5), 2: (1.4, 1.4), 3: (1.3, 1.3)})
    found = run(tmp_path, device, strategy=Watches([1, 2, 3]), more=[("profiler", profiler)])
    assert profiler.asked == ["1", "3"]
    events = [entry.event for entry in read_journal(found.folder).entries]
    profiled = [event for event in events if isinstance(event, Diagnosed)]
    assert [(event.parent, event.judged) for event in profiled] == [
        (candidate(1).id, False), (candidate(3).id, False),
    ]  # fmt: skip
    state = RunFolder(found.folder).load()
    assert [each.after for each in state.profiled.values()] == [2, 3], "two are built at a time"
    assert run(tmp_path, device, strategy=Watches([1, 2, 3])).status == "improved", "without one"


def test_nothing_that_failed_is_profiled(tmp_path):
    class Fails(Device):
        def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
            yield from (records.failed(each) for each in candidates)

    profiler = Profiler()
    run(tmp_path, Fails({}), strategy=Watches([1, 3]), more=[("profiler", profiler)])
    assert not profiler.asked
