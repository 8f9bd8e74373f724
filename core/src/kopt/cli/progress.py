"""Progress of a run on stderr: one line per event, and a bar on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from kopt.evaluator import Opening
    from kopt.model.budget import Budget
    from kopt.model.candidate import Candidate
    from kopt.model.evaluation import Evaluation
    from kopt.model.run import Run


class ProgressReporter:
    """See kopt.reporter.Reporter."""

    def __init__(self, budget: Budget, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
        self._budget = budget
        self._started = time.monotonic()
        self._fastest = ""
        self._count = 0
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24),
                TimeElapsedColumn(), console=self._console, transient=True,
            )  # fmt: skip

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:7.1f}s[/] {text}")

    def _show(self, description: str) -> None:
        if self._bar is None:
            return
        if not self._bar.tasks:
            self._bar.start()
            self._bar.add_task(description, total=self._budget.seconds or None)
        self._bar.update(
            self._bar.task_ids[0], description=description,
            completed=time.monotonic() - self._started,
        )  # fmt: skip

    def opening(self, problem: str, device: str) -> None:
        """Say what is about to be opened."""
        self._say(f"opening {escape(problem)} on {device}: reference, baselines, noise")
        self._show("baselines")

    def opened(self, opening: Opening) -> None:
        """Show the baselines."""
        self._fastest = opening.fastest
        self._say(f"device {escape(opening.device.name)}, noise {opening.noise:.1%}")
        for baseline in opening.baselines:
            mark = " (fastest)" if baseline.name == opening.fastest else ""
            latency = baseline.measurement.latency_ms
            self._say(f"baseline {escape(baseline.name):<22} {latency:10.4f} ms{mark}")
        for name, reason in opening.failed_baselines.items():
            self._say(f"baseline {escape(name)} left out: {escape(reason[:200])}")

    def proposed(self, round_number: int, candidates: Sequence[Candidate]) -> None:
        """Announce a round."""
        self._say(f"round {round_number}: {len(candidates)} candidate(s)")
        self._show(f"round {round_number}")

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """One line per trial: number, id, verdict, time, speedup, idea."""
        self._count += 1
        candidate = evaluation.candidate
        said = f"[bold]{evaluation.status}[/]"
        measurement = evaluation.measurement
        if measurement is not None:
            speedup = measurement.speedup[self._fastest]
            said = (
                f"[green]correct[/] {measurement.latency_ms:10.4f} ms  {speedup.median:6.3f}x "
                f"({speedup.low:.3f} to {speedup.high:.3f})"
            )
        star = " *" if best is not None and best.id == evaluation.id else ""
        self._say(
            f"#{self._count:<3} {evaluation.id[:8]} {said}{star}  "
            f"{escape(candidate.strategy)}: {escape(candidate.idea)}"
        )
        if measurement is None and evaluation.detail:
            self._say(f"     {escape(_first_line(evaluation.detail))}")
        self._show(f"{self._count} tried")

    def confirming(self, candidate: Candidate) -> None:
        """Announce the confirmation."""
        self._say(f"confirming {candidate.id[:8]} in a fresh process with new seeds")
        self._show("confirming")

    def finished(self, run: Run) -> None:
        """Say how it ended."""
        if self._bar is not None and self._bar.tasks:
            self._bar.stop()
        self._say(f"{run.status}: {escape(run.reason)}")
        sys.stderr.flush()


def _first_line(detail: str) -> str:
    lines = [line for line in detail.strip().splitlines() if line.strip()]
    return lines[-1][:240] if lines and lines[0].startswith("Traceback") else (
        lines[0][:240] if lines else ""
    )
