"""Progress of ``kopt build`` on stderr."""

from __future__ import annotations

from rich.markup import escape

from kopt.cli.progress import ProgressReporter


class BuildProgress(ProgressReporter):
    """Says what is built instead of what is opened for a verdict."""

    def preparing(self, problem: str, device: str) -> None:
        """Say what is about to be built; the reference runs first, for its shapes."""
        self.step(f"building a kernel of {escape(problem)}; the reference runs first, for shapes")
        self._show("building")
