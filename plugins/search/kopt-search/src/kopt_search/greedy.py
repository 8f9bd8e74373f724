"""Greedy search: always go on from the fastest candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kopt
from kopt_search.stopping import StoppingOptions, ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History


class Greedy:
    """Each round has one parent: the fastest correct evaluation so far."""

    class Options(StoppingOptions):
        """Options of greedy search."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_select(self, history: History, round_number: int) -> Sequence[Evaluation]:
        """Return the best evaluation; nothing where none was measured, which ends the run."""
        best = history.best()
        return [] if best is None else [best]

    @kopt.hookimpl
    def kopt_stop(self, history: History) -> str | None:
        """Say that there is nothing to gain, or that ``patience`` has run out, or nothing."""
        return ended(history, self.options)
