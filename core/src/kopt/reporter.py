"""Who is told how a run goes on, as it goes on (the command line's progress, a notebook's)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kopt.evaluator import Opening
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.run import Run


class Steps(Protocol):
    """Told by whoever opens a problem; must not raise."""

    def preparing(self, problem: str, device: str) -> None:
        """The reference is about to be run, without baselines."""
        ...

    def opening(self, problem: str, device: str) -> None:
        """The reference and the baselines are about to be run."""
        ...

    def opened(self, opening: Opening) -> None:
        """Baselines are timed."""
        ...

    def judged(self, kernel: str, status: str, count: str) -> None:
        """One kernel of many has its verdict; ``count`` as 3/70."""
        ...

    def probed(self, what: str, seconds: float) -> None:
        """A profiler has run a kernel under a tool, traced it, or had its code listed."""
        ...


class Reporter(Protocol):
    """Told by the session; must not raise."""

    def opening(self, problem: str, device: str) -> None:
        """The reference and the baselines are about to be run."""
        ...

    def opened(self, opening: Opening) -> None:
        """Baselines are timed."""
        ...

    def proposed(self, round_number: int, candidates: Sequence[Candidate]) -> None:
        """A round begins."""
        ...

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """An evaluation is in the journal."""
        ...

    def warned(self, text: str) -> None:
        """Something that the user should know now: a budget runs out, a model is not asked again."""
        ...

    def confirming(self, candidate: Candidate) -> None:
        """The winner is evaluated again."""
        ...

    def unconfirmed(self, evaluation: Evaluation) -> None:
        """It did not hold; the next best may."""
        ...

    def finished(self, run: Run) -> None:
        """The run has ended."""
        ...


class Silent:
    """Tells nobody."""

    def preparing(self, problem: str, device: str) -> None:
        """Say nothing."""

    def opening(self, problem: str, device: str) -> None:
        """Say nothing."""

    def opened(self, opening: Opening) -> None:
        """Say nothing."""

    def judged(self, kernel: str, status: str, count: str) -> None:
        """Say nothing."""

    def probed(self, what: str, seconds: float) -> None:
        """Say nothing."""

    def proposed(self, round_number: int, candidates: Sequence[Candidate]) -> None:
        """Say nothing."""

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """Say nothing."""

    def warned(self, text: str) -> None:
        """Say nothing."""

    def confirming(self, candidate: Candidate) -> None:
        """Say nothing."""

    def unconfirmed(self, evaluation: Evaluation) -> None:
        """Say nothing."""

    def finished(self, run: Run) -> None:
        """Say nothing."""
