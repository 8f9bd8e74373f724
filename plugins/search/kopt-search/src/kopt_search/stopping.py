"""When a search should end: the options and the rules that greedy and beam share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

import kopt

if TYPE_CHECKING:
    from kopt.model.history import History

IMPROVEMENT = 0.005
"""An evaluation is an improvement where it is this much faster than the last improvement was."""


class StoppingOptions(kopt.Options):
    """Options of every policy here."""

    patience: int | None = Field(default=None, gt=0)
    """End the run after this many evaluations in a row without an improvement of more than 0.5 %,
    failed ones included; None: search until the budget is spent or nothing is proposed."""
    times_copy: float | None = Field(default=1.01, ge=1.0)
    """End the run once the fastest kernel or baseline takes no more than this times what a plain
    copy of the same bytes takes, on a GPU; None: go on all the same."""


def evaluations_without_improvement(history: History) -> int:
    """Return how many evaluations came after the last improvement.

    The first measured evaluation is one; before it, every evaluation counts. Small steps add up:
    each is compared with the last improvement, not with the step before.
    """
    best, stale = None, 0
    for evaluation in history:
        stale += 1
        if evaluation.measured:
            speedup = history.speedup(evaluation)
            if best is None or speedup > best * (1 + IMPROVEMENT):
                best, stale = speedup, 0
    return stale


def ended(history: History, options: StoppingOptions) -> str | None:
    """Return why the search should end, or None while it should go on."""
    return at_the_limit(history, options.times_copy) or stalled(history, options.patience)


def at_the_limit(history: History, times_copy: float | None) -> str | None:
    """Return that memory allows for nothing faster, or None while it does."""
    best = history.best()
    speedup = history.speedup(best) if best is not None else 0.0
    if (
        times_copy is None
        or history.copy_speedup is None
        or history.copy_speedup > times_copy * max(speedup, 1.0)
    ):
        return None
    what = "the fastest kernel" if speedup > 1.0 else history.baseline
    return (
        f"search: nothing to gain: {what} takes {history.copy_speedup / max(speedup, 1.0):.2f} times what a "
        "plain copy of the same bytes does"
    )


def stalled(history: History, patience: int | None) -> str | None:
    """Return why the search should end, or None while it should go on."""
    if patience is None or (stale := evaluations_without_improvement(history)) < patience:
        return None
    if not any(evaluation.measured for evaluation in history):
        return f"search: none of the {stale} evaluations was correct (patience {patience})"
    return (
        f"search: {stale} evaluations in a row without an improvement of more than "
        f"{IMPROVEMENT:.1%} (patience {patience})"
    )
