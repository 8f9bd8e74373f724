"""Beam search: go on from the fastest few candidates that differ in more than their knobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

import kopt
from kopt_search.stopping import StoppingOptions, ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History


class Beam:
    """Each round has up to ``width`` parents, each of another structure.

    Without that rule one well tuned structure would fill the beam with its own knob settings.
    """

    class Options(StoppingOptions):
        """Options of beam search."""

        width: int = Field(default=3, gt=0)
        """Parents per round."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_select(self, history: History, round_number: int) -> Sequence[Evaluation]:
        """Return the best of each structure, fastest first, ``width`` at most.

        Equally fast ones come in the order of their ids. Nothing measured: no parents, which ends
        the run.
        """
        best_of: dict[str, Evaluation] = {}
        for evaluation in history.ranked():
            best_of.setdefault(evaluation.candidate.structure, evaluation)
            if len(best_of) == self.options.width:
                break
        return list(best_of.values())

    @kopt.hookimpl
    def kopt_stop(self, history: History) -> str | None:
        """Say that there is nothing to gain, or that ``patience`` has run out, or nothing."""
        return ended(history, self.options)
