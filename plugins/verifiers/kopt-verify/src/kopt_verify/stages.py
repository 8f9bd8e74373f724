"""Stages 3 to 5: smoke, poison, accuracy, on judge-owned inputs and outputs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import torch

from kopt.model.verification import StageResult, Status
from kopt_verify.conditioning import compare_twice
from kopt_verify.standing import taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.reference import InputSet
    from kopt.model.trial import Trial
    from kopt.model.values import CallClaim
    from kopt_verify.standing import Question, Questions


_FIRST_GARBAGE, _SECOND_GARBAGE = 0xFF, 0x37
"""Bytes that outputs are filled with: NaN as a float, then a small number."""
_CHUNK = 1 << 26


class StageFailedError(Exception):
    """A stage failed: with which status, and why."""

    def __init__(
        self, stage: str, status: Status, evidence: str, ratio: float | None = None
    ) -> None:
        super().__init__(evidence)
        self.stage, self.status, self.evidence, self.ratio = stage, status, evidence, ratio
        self.passed: list[StageResult] = []


def run_stages(
    trial: Trial, seeds: int, questions: Questions
) -> tuple[list[StageResult], float | None]:
    """Run smoke, poison and accuracy on every workload; return the stages and the worst ratio.

    The time of all three is accuracy's: they look at the same calls. Raises StageFailedError for the first that fails; CandidateError passes through.
    """
    began = time.monotonic()
    rng = random.Random(trial.seed)
    evidence: dict[str, list[str]] = {"smoke": [], "poison": [], "accuracy": []}
    ratios: list[float] = []
    try:
        for workload in trial.problem.workloads:
            for index, distribution in enumerate(trial.reference.distributions):
                for number in range(seeds):
                    with questions.ask(trial, workload.name, distribution, number, rng) as question:
                        poison = index == 0 and number == 0
                        _answer(trial, question, evidence, ratios, poison=poison)
    except StageFailedError as failure:
        failure.passed = [s for s in _results(evidence) if s.stage != failure.stage]
        raise
    results = _results(evidence)
    took = time.monotonic() - began
    found = [
        each.model_copy(update={"seconds": took}) if each.stage == "accuracy" else each
        for each in results
    ]
    return found, max(ratios, default=None)


def timed(stages: Iterator[StageResult]) -> Iterator[StageResult]:
    """Yield the stages, each with the seconds that it took to come."""
    began = time.monotonic()
    for stage in stages:
        yield stage.model_copy(update={"seconds": time.monotonic() - began})
        began = time.monotonic()


def _results(evidence: dict[str, list[str]]) -> list[StageResult]:
    return [
        StageResult(stage=stage, outcome="pass", evidence="; ".join(dict.fromkeys(found)))
        for stage, found in evidence.items()
        if found
    ]


def _answer(
    trial: Trial,
    question: Question,
    evidence: dict[str, list[str]],
    ratios: list[float],
    *,
    poison: bool,
) -> None:
    inputs = question.inputs
    inputs.poison(_FIRST_GARBAGE)
    claim = trial.run(inputs)
    evidence["smoke"].append(smoke(claim, inputs))
    _untouched(trial, inputs)
    runs: list[list[torch.Tensor]] = []
    if poison:
        runs.append([result.clone() for _, result in inputs.results])
        said, differ = _poison(trial, inputs, runs[0])
        evidence["poison"].append(said)
        if not differ:
            runs.clear()  # they agree bit for bit: the second one's results are judged
    runs.append(taken(trial, inputs))
    while runs:
        found, ratio = _accuracy(trial, question, runs.pop(0))
        evidence["accuracy"].append(found)
        ratios += [] if ratio is None else [ratio]


def smoke(claim: CallClaim, inputs: InputSet) -> str:
    """Structure, number, shape, dtype and device of what was returned."""
    wanted = inputs.call
    if claim.structure != wanted.structure:
        raise StageFailedError(
            "smoke", Status.INVALID_OUTPUT,
            f"it returned {claim.structure}, the reference returns {wanted.structure}",
        )  # fmt: skip
    if len(claim.outputs) != len(wanted.outputs):
        raise StageFailedError(
            "smoke", Status.INVALID_OUTPUT,
            f"it returned {len(claim.outputs)} tensors, the reference {len(wanted.outputs)}",
        )  # fmt: skip
    for index, (got, ref) in enumerate(zip(claim.outputs, wanted.outputs, strict=True)):
        for what, have, want in (
            ("shape", got.shape, ref.shape),
            ("dtype", got.dtype, ref.dtype),
            ("device", got.device, _device_of(inputs)),
        ):
            if have != want:
                raise StageFailedError(
                    "smoke", Status.INVALID_OUTPUT,
                    f"output {index} has {what} {have}, the reference's has {want}",
                )  # fmt: skip
    return f"{claim.structure}, {len(claim.outputs)} output(s) as the reference's"


def _device_of(inputs: InputSet) -> str:
    outputs: list[Any] = inputs.outputs
    return str(outputs[0].device.type) if outputs else "cpu"


def _untouched(trial: Trial, inputs: InputSet) -> None:
    """No undeclared input was changed and nothing was written around a tensor."""
    changed = set(inputs.changed()) - set(trial.problem.mutates)
    if changed:
        raise StageFailedError(
            "poison", Status.MUTATES_INPUT, f"it changed the input {', '.join(sorted(changed))}"
        )
    hurt = inputs.canaries_hurt()
    if hurt:
        raise StageFailedError(
            "poison", Status.ILLEGAL_ACCESS, f"it wrote outside of {', '.join(sorted(hurt))}"
        )


def _poison(trial: Trial, inputs: InputSet, first: list[torch.Tensor]) -> tuple[str, bool]:
    """Run again over other garbage: an element that is still the garbage was not written.

    Also returns whether results differ for another reason (atomics): then the accuracy of both runs
    is to be judged.
    """
    if trial.problem.mutates:
        inputs.restore()
    inputs.poison(_SECOND_GARBAGE)
    trial.run(inputs)
    _untouched(trial, inputs)
    count = 0
    for (name, now), before in zip(inputs.results, first, strict=True):
        differing, unwritten = compare_bits(now, before)
        count += differing
        if unwritten:
            raise StageFailedError(
                "poison", Status.INCOMPLETE_WRITE,
                f"{name}: {unwritten} of {now.numel()} elements were not written",
            )  # fmt: skip
    if count:
        return f"{count} elements differ between two runs on the same inputs", True
    return "two runs over different garbage are bitwise equal; inputs and canaries intact", False


def compare_bits(now: torch.Tensor, before: torch.Tensor) -> tuple[int, int]:
    """Return how many elements differ, and how many of those are the second garbage."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[now.element_size()]
    garbage = int.from_bytes(bytes([_SECOND_GARBAGE] * now.element_size()), "little")
    new, old = (tensor.contiguous().view(width).flatten() for tensor in (now, before))
    differing = unwritten = 0
    for start in range(0, new.numel(), _CHUNK):
        mine = new[start : start + _CHUNK]
        differ = mine != old[start : start + _CHUNK]
        found = int(differ.sum().item())
        if found:
            differing += found
            unwritten += int((differ & (mine == garbage)).sum().item())
    return differing, unwritten


def _accuracy(
    trial: Trial, question: Question, results: list[torch.Tensor]
) -> tuple[str, float | None]:
    found = compare_twice(trial.reference, question.inputs, results, question.yardsticks())
    for comparison in found:
        if not comparison.passed:
            evidence = f"{question.label} {comparison.evidence}"
            raise StageFailedError("accuracy", Status.WRONG, evidence, comparison.ratio)
    ratios = [comparison.ratio for comparison in found if comparison.ratio is not None]
    said = ", ".join(comparison.evidence for comparison in found)
    return f"{question.label} {said}", max(ratios, default=None)
