"""Input sets with what they should give: drawn once for a search, anew for a winner."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import torch

from kopt.errors import CandidateError, WorkerError
from kopt_verify.accuracy import Yardstick
from kopt_verify.ties import ties_of

if TYPE_CHECKING:
    from kopt.model.reference import Answer, InputSet, Reference
    from kopt.model.trial import Trial
    from kopt_verify.ties import Tie

_MEMORY_SHARE = 16
_KEPT = 4
"""Times its compulsory bytes that a question takes which stays in memory."""


def yardsticks_for(
    reference: Reference, inputs: InputSet
) -> Iterator[tuple[slice, list[Yardstick]]]:
    """Yield rows and what they should be for the present content, and keep none of it."""
    ties = ties_of(reference, inputs)
    answers = iter(reference.answers(inputs))
    while (answer := next(answers, None)) is not None:
        measured = _measured(answer, ties)
        del answer
        yield measured
        del measured  # before the next slice is computed


def _measured(answer: Answer, ties: Mapping[int, Tie]) -> tuple[slice, list[Yardstick]]:
    mine = {number: tie.rows(answer.rows) for number, tie in ties.items()}
    pairs = zip(answer.expected, answer.oracle, strict=True)
    return answer.rows, [
        Yardstick(expected, oracle, tie=mine.get(number))
        for number, (expected, oracle) in enumerate(pairs)
    ]


class Question:
    """An input set, and how its results are judged once the candidate has answered."""

    def __init__(
        self, reference: Reference, workload: str, seed: int, distribution: str, *, keep: bool
    ) -> None:
        """``keep``: remember the expected results, for the next candidate."""
        self.label = f"{workload}/{distribution}"
        self.inputs: InputSet = reference.inputs(workload, seed, distribution)
        self._reference = reference
        self._keep = keep
        self._kept: list[tuple[slice, list[Yardstick]]] = []

    def yardsticks(self) -> Iterator[tuple[slice, list[Yardstick]]]:
        """Yield rows and what they should be; computed only after the candidate has answered."""
        if self._kept:
            yield from self._kept
            return
        parts: list[tuple[slice, list[Yardstick]]] = []
        for part in yardsticks_for(self._reference, self.inputs):
            if self._keep:
                parts.append(part)
            yield part
            del part
        self._kept = parts  # only here: half of the answer would pass half of the wrong ones

    def close(self) -> None:
        """Give the memory back."""
        self._kept = []
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
        question = self._kept.get(key) if trial.depth == "search" else None
        keep = question is not None or (
            trial.depth == "search"
            and fits(reference, workload, _KEPT)
            and leaves_room(reference, workload)
        )
        if question is None:
            seed = rng.randrange(1 << 31)
            question = Question(reference, workload, seed, distribution, keep=keep)
            if keep:
                self._kept[key] = question
        with ExitStack() as afterwards:
            afterwards.callback(_put_back, question, keep=keep)
            try:
                yield question
            except BaseException:
                # What is being raised says how the candidate ended; a dead process forgets anyway.
                with suppress(CandidateError, WorkerError):
                    trial.release(question.inputs)
                raise
            trial.release(question.inputs)


def _put_back(question: Question, *, keep: bool) -> None:
    """Have the next candidate find what this one found, however it ended."""
    if not keep:
        question.close()
    elif question.inputs.changed() or question.inputs.canaries_hurt():
        question.inputs.restore()


def workload_of(reference: Reference, inputs: InputSet) -> str:
    """Return the name of the workload that inputs are of, or were changed from."""
    workloads, label = reference.signature.workloads, inputs.workload
    names = [name for name in workloads if label == name or label.startswith(f"{name}, ")]
    return max(names, key=len)


def fits(reference: Reference, workload: str, times: int) -> bool:
    """Whether so many times a workload's compulsory bytes leave a candidate its memory."""
    needed = times * reference.signature.workloads[workload].compulsory_bytes
    return needed < reference.device.memory_bytes // _MEMORY_SHARE


def leaves_room(reference: Reference, workload: str) -> bool:
    """Whether keeping a question leaves others on the device their memory, as they have it now."""
    if reference.device.kind != "cuda":
        return True
    free: int = torch.cuda.mem_get_info()[0]
    return _KEPT * reference.signature.workloads[workload].compulsory_bytes < free // _MEMORY_SHARE


def smallest_workload(trial: Trial) -> str:
    """Return the name of the workload with the fewest compulsory bytes."""
    signatures = trial.reference.signature.workloads
    return min(trial.problem.workloads, key=lambda w: signatures[w.name].compulsory_bytes).name


def taken(trial: Trial, inputs: InputSet) -> list[torch.Tensor]:
    """Return a call's results where they lie, or copies where inputs changed, which are restored."""
    results = [result for _, result in inputs.results]
    if trial.problem.mutates:
        results = [result.clone() for result in results]
        inputs.restore()
    return results
