"""Compiling candidates for a GPU in processes that never use it, several at a time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kopt.errors import CandidateError, WorkerError
from kopt.worker.pool import ProcessPool

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.values import CallSpec
    from kopt.worker.pool import ProcessRecipe

_MOST_PROCESSES = 4
"""Each has imported its frameworks: memory, and CPUs that baselines are compiled on too."""


class AheadCompiler:
    """Fills the compilers' caches, so that the launch that counts finds its kernels there.

    A just-in-time compiler works at the first launch, one candidate after another, while nothing
    else can be measured. Here candidates are compiled beside each other, from shapes alone.
    """

    def __init__(
        self, recipe: ProcessRecipe, architecture: str, workers: int, seconds: float
    ) -> None:
        """:param recipe: of processes for candidates; :param seconds: the deadline of each step."""
        opening = {**recipe.opening, "architecture": architecture, "device": None}
        self._pool = ProcessPool(
            replace(recipe, opening=opening), max(1, min(workers, _MOST_PROCESSES))
        )
        self._seconds = seconds
        self._pool.prestart()

    def compile(self, candidate: Candidate, calls: Iterable[CallSpec]) -> None:
        """Compile what calls of a candidate would launch.

        What fails here is nobody's verdict: it fails again, and is told, where the candidate runs.
        """
        with suppress(CandidateError, WorkerError), self._pool.process() as process:
            name, told = candidate.id, candidate.to_json()
            process.order("build", self._seconds, candidate=told, key=name)
            for call in calls:
                process.order("ahead", self._seconds, call=call.to_json(), key=name)
