"""Compiling candidates for a GPU in processes that never use it, several at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError, WorkerError
from kopt.worker.pool import ProcessPool

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.values import CallSpec
    from kopt.worker.pool import ProcessRecipe

_ALIGNMENT = 256
"""Bytes; no vector access is wider."""
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
        self._compiled: set[tuple[str, str]] = set()

    def compile(self, candidate: Candidate, calls: Iterable[CallSpec]) -> None:
        """Compile what calls of a candidate would launch.

        What fails here is nobody's verdict: it fails again, and is told, where the candidate runs.
        """
        calls = list(calls)
        with suppress(CandidateError, WorkerError), self._pool.process() as process:
            name, told = candidate.id, candidate.to_json()
            process.order("build", self._seconds, candidate=told, key=name)
            for call in calls:
                process.order("ahead", self._seconds, call=call.to_json(), key=name)
        self._compiled.update(_specialised(candidate, call) for call in calls)

    def close(self) -> None:
        """End its processes."""
        self._pool.close()

    def done(self, candidate: Candidate, call: CallSpec) -> bool:
        """Whether a call that compilers cannot tell from this one was compiled before."""
        return _specialised(candidate, call) in self._compiled


def _specialised(candidate: Candidate, call: CallSpec) -> tuple[str, str]:
    """Return what code may depend on: shapes, types, scalars and alignment, not addresses."""
    return candidate.id, json.dumps(_without_addresses(call.to_json()))


def _without_addresses(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_addresses(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without_addresses(each) for name, each in value.items()}
    if value.get("type") == "tensor":
        kept |= {"segment": 0, "offset": value["offset"] % _ALIGNMENT}
    return kept
