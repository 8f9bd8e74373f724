"""Progress on stderr: one line per event, and a bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from kopt.evaluator import Opening
    from kopt.model.budget import Budget, Spend
    from kopt.model.candidate import Candidate
    from kopt.model.evaluation import Evaluation
    from kopt.model.run import Run

_WIDE = 110
"""Columns from which a line has room for everything."""


class ProgressReporter:
    """See kopt.reporter.Reporter. As a context it takes the bar away, however it is left.

    :param budget: of the run, for the bar.
    :param spend: what earlier parts of the run have used up.
    """

    def __init__(self, budget: Budget | None = None, spend: Spend | None = None) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._fastest = ""
        self._count = spend.trials if spend else 0
        self._left: float | None = None
        if budget is not None and budget.seconds is not None:
            self._left = max(1.0, budget.seconds - (spend.seconds if spend else 0.0))
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24),
                TimeElapsedColumn(), console=self._console, transient=True,
            )  # fmt: skip

    def __enter__(self) -> ProgressReporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_bar()

    def step(self, text: str) -> None:
        """Print one line: in full, or cut at the edge of a terminal, where lines must not wrap."""
        line = f"[dim]{time.monotonic() - self._started:6.1f}s[/] {text}"
        if self._console.is_terminal:
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(line, soft_wrap=True)

    def _show(self, description: str) -> None:
        if self._bar is None:
            return
        if not self._bar.tasks:
            self._bar.start()
            self._bar.add_task(description, total=self._left)
        elapsed = time.monotonic() - self._started
        self._bar.update(self._bar.task_ids[0], description=description, completed=elapsed)

    def _stop_bar(self) -> None:
        if self._bar is not None and self._bar.tasks:
            self._bar.stop()

    def opening(self, problem: str, device: str) -> None:
        """Say what is about to be opened."""
        self.step(f"opening {escape(problem)} on {device}: reference, baselines, noise")
        self._show("timing the baselines")

    def preparing(self, problem: str, device: str) -> None:
        """Say that a problem is about to be opened without its baselines."""
        self.step(f"opening {escape(problem)} on {device}")
        self._show("verifying")

    def opened(self, opening: Opening) -> None:
        """Show the baselines."""
        self._fastest = opening.fastest
        self.step(f"device {escape(opening.device.name)}, noise {opening.noise:.1%}")
        width = max(len(baseline.name) for baseline in opening.baselines)
        for baseline in opening.baselines:
            mark = " (fastest)" if baseline.name == opening.fastest else ""
            latency = baseline.measurement.latency_ms
            self.step(f"baseline {escape(baseline.name.ljust(width))} {latency:9.4f} ms{mark}")
        for name, reason in opening.failed_baselines.items():
            self.step(f"baseline {escape(name)} left out: {escape(_gist(reason))}")

    def judged(self, kernel: str, status: str, count: str) -> None:
        """One line per kernel of a selftest."""
        self.step(f"{count:>7} {escape(kernel)}: {status}")

    def probed(self, what: str, seconds: float) -> None:
        """One line for each thing that a profiler did."""
        self.step(f"profiling: {escape(what)} took {seconds:.1f} s")

    def proposed(self, round_number: int, candidates: Sequence[Candidate]) -> None:
        """Announce a round."""
        count = len(candidates)
        self.step(f"round {round_number}: {count} candidate{'' if count == 1 else 's'}")
        self._show(f"round {round_number}")

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """One line per trial: number, id, verdict, time, speedup, idea."""
        self._count += 1
        candidate = evaluation.candidate
        star = " *" if best is not None and best.id == evaluation.id else ""
        said = f"{self._verdict(evaluation)}{star} {candidate.strategy}: {escape(candidate.idea)}"
        if evaluation.measurement is None and evaluation.detail:
            said += f" | {escape(_gist(evaluation.detail))}"
        self.step(f"#{self._count:<3} {evaluation.id[:8]} {said}")
        self._show(f"{self._count} tried{self._lead(best)}")

    def warned(self, text: str) -> None:
        """One line that stands out."""
        self.step(f"[yellow]language model: {escape(text)}[/]")

    def _verdict(self, evaluation: Evaluation) -> str:
        measurement = evaluation.measurement
        if measurement is None:
            return f"[red]{evaluation.status}[/]" if evaluation.detail else str(evaluation.status)
        speedup = measurement.speedup[self._fastest]
        said = f"[green]correct[/] {measurement.latency_ms:.4f} ms {speedup.median:6.3f}x"
        if self._console.is_terminal and self._console.width < _WIDE:
            return said  # the idea says more than the interval, which `kopt show` has
        return f"{said} ({speedup.low:.3f} to {speedup.high:.3f})"

    def _lead(self, best: Evaluation | None) -> str:
        if best is None or best.measurement is None:
            return ""
        return f", best {best.measurement.speedup[self._fastest].median:.2f}x"

    def confirming(self, candidate: Candidate) -> None:
        """Announce the confirmation."""
        self.step(f"confirming {candidate.id[:8]} in a fresh process with new seeds")
        self._show("confirming")

    def unconfirmed(self, evaluation: Evaluation) -> None:
        """Say what was the matter there."""
        said = f" | {escape(_gist(evaluation.detail))}" if evaluation.detail else ""
        self.step(f"not confirmed: {evaluation.id[:8]} [red]{evaluation.status}[/]{said}")

    def finished(self, run: Run) -> None:
        """Say how it ended."""
        self._stop_bar()
        self.step(f"{run.status}: {escape(run.reason)}")


def _gist(detail: str) -> str:
    """Return the line that says most: a traceback's last one, the first one of anything else."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1][:240] if lines[0].startswith("Traceback") else lines[0][:240]
