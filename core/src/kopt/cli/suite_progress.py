"""How a suite's progress is told: a heading for each problem, its run's lines, its outcome."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kopt.cli.progress import ProgressReporter
from kopt.reporter import Silent

if TYPE_CHECKING:
    from kopt.model.budget import Budget, Spend
    from kopt.reporter import Reporter
    from kopt.suites.problem import SuiteProblem
    from kopt.suites.records import Row


class SuiteProgress:
    """See kopt.suites.runner.Told; it writes to stderr.

    :param alone: whether one problem is run at a time; else runs tell their own progress.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self._alone = alone

    def line(self, text: str) -> None:
        """Put a line of a run."""
        _say(text)

    @contextmanager
    def begins(
        self, problem: SuiteProblem, place: str, budget: Budget, spend: Spend | None
    ) -> Iterator[Reporter]:
        """Put the problem's heading, and give its run a reporter."""
        again = ", going on" if spend else ""
        _say(f"[{place}] {problem.id} {problem.name}{again}")
        if not self._alone:
            yield Silent()
            return
        with ProgressReporter(budget, spend) as reporter:
            yield reporter

    def ended(self, row: Row) -> None:
        """Put the outcome in one line."""
        _say(f"{row.id} {row.name}: {said(row)} in {row.seconds:.0f} s")


def said(row: Row) -> str:
    """Return a row's outcome in words."""
    if row.chosen is None:
        return f"failed: {gist(row.reason)}"
    if row.verdict == "baseline" and not row.count:
        return f"nothing was tried, and {row.chosen.name} is kept ({gist(row.reason)})"
    if row.verdict == "baseline":
        return f"nothing faster than {row.chosen.name}, which is kept"
    best = row.speedup["best"]
    return f"{best.median:.2f}x over {row.best_baseline} ({best.low:.2f} to {best.high:.2f})"


def gist(text: str) -> str:
    """Return the line of an error that says most, cut where it is long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= 160 else line[:157] + "..."


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
