"""What a journal tells of a run, for going on with it or for showing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kopt.evaluator import Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.history import Profiled
from kopt.model.problem import Problem
from kopt.model.run import RunConfig
from kopt.runs.events import (
    Asked,
    Confirmed,
    Diagnosed,
    Entry,
    Evaluated,
    Event,
    Finished,
    Opened,
    PluginFailed,
    Proposed,
    unsettled,
)


@dataclass(frozen=True)
class PendingRound:
    """A round that began and of which something is still to be evaluated."""

    round_number: int
    parents: tuple[str, ...]
    """Candidate ids."""
    candidates: tuple[Candidate, ...]
    """Those without an evaluation, in the order in which they were proposed."""


@dataclass(frozen=True)
class RunState:
    """A run as its folder tells it."""

    problem: Problem
    config: RunConfig
    opening: Opening | None
    """The last one: a resumed run measures its baselines again."""
    evaluations: tuple[Evaluation, ...]
    """In order, the first one of each candidate id."""
    pending: PendingRound | None
    rounds: int
    """Rounds that began."""
    spend: Spend
    """The most of each that any line tells."""
    confirmed: Evaluation | None
    diagnosed: dict[str, Diagnosed]
    """By parent, what was found out of it for the round that was about to begin: what is asked of
    a language model next names these figures, and new ones would make it another request."""
    profiled: dict[str, Profiled]
    """By candidate, what profilers said the first time."""
    unsettled: tuple[Asked, ...]
    """Requests to a language model that a killed process left behind, and that nobody counted yet."""
    plugin_failures: tuple[PluginFailed, ...]
    finished: Finished | None
    """None where the run did not end, or was gone on with after it had ended."""


def state_of(problem: Problem, config: RunConfig, entries: Sequence[Entry]) -> RunState:
    """Return the state after ``entries``."""
    events = [entry.event for entry in entries]
    evaluations: dict[str, Evaluation] = {}
    for event in events:
        if isinstance(event, Evaluated):
            evaluations.setdefault(event.evaluation.id, event.evaluation)
    rounds = [event for event in events if isinstance(event, Proposed)]
    openings = [event.opening for event in events if isinstance(event, Opened)]
    confirmations = [event.evaluation for event in events if isinstance(event, Confirmed)]
    last = events[-1] if events else None
    return RunState(
        problem=problem,
        config=config,
        opening=openings[-1] if openings else None,
        evaluations=tuple(evaluations.values()),
        pending=_pending(rounds[-1], evaluations) if rounds else None,
        rounds=len({event.round_number for event in rounds}),
        spend=_largest([entry.spend for entry in entries]),
        confirmed=confirmations[-1] if confirmations else None,
        diagnosed=_diagnosed(events),
        profiled=_profiled(events),
        unsettled=unsettled(events),
        plugin_failures=tuple(event for event in events if isinstance(event, PluginFailed)),
        finished=last if isinstance(last, Finished) else None,
    )


def _diagnosed(events: Sequence[Event]) -> dict[str, Diagnosed]:
    begun = max((i for i, e in enumerate(events) if isinstance(e, Proposed)), default=-1)
    return {e.parent: e for e in events[begun + 1 :] if isinstance(e, Diagnosed)}


def _profiled(events: Sequence[Event]) -> dict[str, Profiled]:
    evaluated: set[str] = set()
    found: dict[str, Profiled] = {}
    for event in events:
        if isinstance(event, Evaluated):
            evaluated.add(event.evaluation.id)
        elif isinstance(event, Diagnosed):
            found.setdefault(event.parent, Profiled(event.profiles, len(evaluated)))
    return found


def _pending(proposed: Proposed, evaluations: dict[str, Evaluation]) -> PendingRound | None:
    left = {c.id: c for c in proposed.candidates if c.id not in evaluations}
    if not left:
        return None
    return PendingRound(proposed.round_number, proposed.parents, tuple(left.values()))


def _largest(spends: Sequence[Spend]) -> Spend:
    return Spend(
        seconds=max((spend.seconds for spend in spends), default=0.0),
        trials=max((spend.trials for spend in spends), default=0),
        tokens=max((spend.tokens for spend in spends), default=0),
        usd=max((spend.usd for spend in spends), default=0.0),
        unpriced_tokens=max((spend.unpriced_tokens for spend in spends), default=0),
    )
