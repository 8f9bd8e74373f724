"""Input sets with what they should give: drawn once for a search, anew for a winner."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kopt_verify.accuracy import Yardstick

if TYPE_CHECKING:
    from kopt.model.reference import InputSet, Reference
    from kopt.model.trial import Trial

_MEMORY_SHARE = 16


class Question:
    """An input set, and how its results are judged once the candidate has answered."""

    def __init__(self, reference: Reference, workload: str, seed: int, distribution: str) -> None:
        self.label = f"{workload}/{distribution}"
        self.inputs: InputSet = reference.inputs(workload, seed, distribution)
        self._reference = reference
        self._yardsticks: list[Yardstick] | None = None

    def yardsticks(self) -> list[Yardstick]:
        """Compute reference and oracle, only after the candidate has answered."""
        if self._yardsticks is None:
            expected = self._reference.expected(self.inputs)
            oracle = self._reference.oracle(self.inputs)
            self._yardsticks = [Yardstick(e, o) for e, o in zip(expected, oracle, strict=True)]
        return self._yardsticks

    def close(self) -> None:
        """Give the memory back."""
        self._yardsticks = None
        self.inputs.close()


class Questions:
    """Asks the same secret questions of every candidate of a search, new ones of a winner.

    A candidate sees inputs only, so that knowing an earlier candidate's helps it in nothing.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], Question] = {}

    @contextmanager
    def ask(
        self, trial: Trial, workload: str, distribution: str, number: int, rng: random.Random
    ) -> Iterator[Question]:
        """Lend a question; the candidate's process has forgotten it afterwards."""
        reference, key = trial.reference, (workload, distribution, number)
        keep = trial.depth == "search" and _small(reference, workload)
        question = self._kept.get(key) if keep else None
        if question is None:
            question = Question(reference, workload, rng.randrange(1 << 31), distribution)
            if keep:
                self._kept[key] = question
        try:
            yield question
        finally:
            trial.release(question.inputs)
            if not keep:
                question.close()
            elif question.inputs.changed() or question.inputs.canaries_hurt():
                question.inputs.restore()


def _small(reference: Reference, workload: str) -> bool:
    """Whether a question may stay in memory (it takes about four times its bytes)."""
    needed = 4 * reference.signature.workloads[workload].compulsory_bytes
    return needed < reference.device.memory_bytes // _MEMORY_SHARE
