"""What a search policy has to do (needs pytest)."""

from __future__ import annotations

from typing import ClassVar

from kopt.model.budget import Budget, Spend
from kopt.model.candidate import Candidate, Knob
from kopt.model.evaluation import Evaluation
from kopt.model.verification import Status
from kopt.testing import records
from kopt.testing.plugin import PluginContract

_KNOBS = {"BLOCK": Knob(default=1, choices=(1, 2, 4, 8))}


def _candidate(structure: str, block: int) -> Candidate:
    return Candidate(
        language="cpp", source=f"// {structure}", entry="kernel", knobs=_KNOBS,
        values={"BLOCK": block},
    )  # fmt: skip


def _evaluations() -> list[Evaluation]:
    """Four structures with one to four settings each, three failures, and two of equal speed."""
    speeds = {"a": (1.0, 2.0, 4.0, 3.0), "b": (3.5, 1.5), "c": (0.5,), "d": (2.0, 2.0)}
    found = [
        records.measured(_candidate(name, block), speed)
        for name, values in speeds.items()
        for block, speed in zip((1, 2, 4, 8), values, strict=False)
    ]
    failures = (Status.WRONG, Status.COMPILE_ERROR, Status.HANG)
    return found + [
        records.failed(_candidate(f"failed {status}", 1), status) for status in failures
    ]


class SearchContract(PluginContract):
    """A search chooses distinct, measured parents by its arguments alone, and none from nothing."""

    role: ClassVar[str] = "search"

    def test_nothing_evaluated_selects_nothing(self) -> None:
        """An empty history ends a run."""
        selected = self.hooks().kopt_select(records.history(), 1)
        assert selected is not None
        assert list(selected) == []

    def test_failures_alone_select_nothing(self) -> None:
        """What is not correct and measured is no parent."""
        failures = [e for e in _evaluations() if not e.measured]
        selected = self.hooks().kopt_select(records.history(failures), 1)
        assert selected is not None
        assert list(selected) == []

    def test_parents_are_distinct_measured_and_of_the_history(self) -> None:
        """No parent twice, none that failed, none made up; at least one where there is one."""
        history = records.history(_evaluations())
        for round_number in (1, 2, 5):
            selected = list(self.hooks().kopt_select(history, round_number) or [])
            ids = [evaluation.id for evaluation in selected]
            assert ids
            assert len(set(ids)) == len(ids)
            assert all(history.get(evaluation.id) == evaluation for evaluation in selected)
            assert all(evaluation.measured for evaluation in selected)

    def test_the_choice_follows_from_the_arguments_alone(self) -> None:
        """A used instance and a new one choose the same: a resumed run has to go on alike."""
        evaluations = _evaluations()
        used = self.hooks()
        for count in range(1, len(evaluations)):
            used.kopt_select(records.history(evaluations[:count]), count)
        history = records.history(evaluations)
        again = [used.kopt_select(history, 3), self.hooks().kopt_select(history, 3)]
        first, second = ([e.id for e in chosen or []] for chosen in again)
        assert first == second

    def test_it_leaves_the_history_as_it_is(self) -> None:
        """Recording is the session's business."""
        history = records.history(_evaluations())
        before = [evaluation.id for evaluation in history]
        hooks = self.hooks()
        hooks.kopt_select(history, 1)
        hooks.kopt_stop(history, Budget(trials=100), Spend(trials=len(history)))
        assert [evaluation.id for evaluation in history] == before

    def test_stopping_gives_a_reason_or_nothing(self) -> None:
        """A reason is text for a person, and there is none before anything was evaluated."""
        hooks = self.hooks()
        reason = hooks.kopt_stop(records.history(_evaluations()), Budget(), Spend(trials=12))
        assert reason is None or reason.strip()
        assert hooks.kopt_stop(records.history(), Budget(), Spend()) is None
        assert hooks.failures == []
