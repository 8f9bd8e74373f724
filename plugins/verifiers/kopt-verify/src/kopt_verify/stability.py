"""Stage stability: values that are large, tiny, far from zero, cancelling, constant or infinite."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kopt.model.reference import Change
from kopt.model.verification import StageResult, Status
from kopt_verify import infinities
from kopt_verify.beyond import best_distribution, fewer_first, small_extents, strained_fault
from kopt_verify.stages import StageFailedError, smoke
from kopt_verify.standing import smallest_workload

if TYPE_CHECKING:
    from kopt.model.reference import InputSet
    from kopt.model.trial import Trial
    from kopt_verify.beyond import Beyond

_STAGE = "stability"
_GARBAGE = 0xFF
CONTENTS: dict[str, tuple[str, ...]] = {
    "large values": ("scale:100", "scale:10"),
    "tiny values": ("scale:1e-10", "scale:1e-3"),
    "values far from zero": ("offset:1000",),
    "values that cancel": ("alternating",),
    "constant rows": ("constant",),
    **infinities.CONTENTS,
}
"""What a kernel has to get right, and how inputs are made so: the first that the reference takes."""


def check_stability(trial: Trial, beyond: Beyond) -> StageResult:
    """Judge a candidate on strained values, by the accuracy rule and the inputs' own rounding.

    Where the workload is large they are looked at in smaller shapes, which a kernel may refuse: then
    in fewer of the first axis, which it may refuse too. Where it is not right there on usual values
    either, its own shapes decide: libraries choose algorithms by shape, and the reference may be more
    exact there than where it is used.
    Raises StageFailedError, as wrong; CandidateError passes through.
    """
    workload = smallest_workload(trial)
    refused = None
    if small := small_extents(trial.reference, workload):
        for extents in filter(None, (small, fewer_first(trial.reference, workload))):
            if _wrong_anyway(trial, beyond, extents):
                break
            found = _at_smaller_extents(trial, beyond, extents)
            if found.outcome == "pass":
                return found
            refused = refused or found
        else:
            if refused is not None:
                return refused
    right: list[str] = []
    for name, contents in CONTENTS.items():
        change, inputs = _first(trial, name, contents)
        if inputs is None:
            continue
        with closing(inputs):
            _judge(trial, inputs, change)
            trial.release(inputs)
        right.append(name)
    if not right:
        evidence = "no argument may have other values, or the reference is not finite on them"
        return StageResult(stage=_STAGE, outcome="not run", evidence=evidence)
    return StageResult(stage=_STAGE, outcome="pass", evidence=f"right on {', '.join(right)}")


def _wrong_anyway(trial: Trial, beyond: Beyond, small: dict[str, int]) -> bool:
    how = best_distribution(trial.reference)
    look = beyond.look(Change("smaller shapes", small, distribution=how), trial.seed)
    return look is not None and look.kind == "wrong"


def _at_smaller_extents(trial: Trial, beyond: Beyond, small: dict[str, int]) -> StageResult:
    right: list[str] = []
    how = best_distribution(trial.reference)
    for name, contents in CONTENTS.items():
        for content in contents:
            look = beyond.look(
                Change(name, small, content=content, distribution=how), trial.seed
            )  # fmt: skip
            if look is None:
                continue
            if look.kind == "refused":
                evidence = (
                    f"it refuses the smaller shapes that values are looked at in: {look.said}"
                )
                return StageResult(stage=_STAGE, outcome="not run", evidence=evidence)
            if look.kind == "wrong":
                raise StageFailedError(_STAGE, look.status, f"on {name}: {look.said}")
            right.append(name)
            break
    if not right:
        evidence = "no argument may have other values, or the reference is not finite on them"
        return StageResult(stage=_STAGE, outcome="not run", evidence=evidence)
    shape = ", ".join(f"{name}={extent}" for name, extent in small.items())
    evidence = f"right on {', '.join(right)}, at {shape}"
    return StageResult(stage=_STAGE, outcome="pass", evidence=evidence)


def _first(trial: Trial, name: str, contents: tuple[str, ...]) -> tuple[Change, InputSet | None]:
    """Return the first of the contents that the reference takes, with inputs; None: it takes none."""
    reference, workload = trial.reference, smallest_workload(trial)
    how = best_distribution(reference)
    for content in contents:
        change = Change(name, content=content, distribution=how)
        inputs = reference.changed_inputs(workload, trial.seed, change)
        if inputs is not None:
            break
    return change, inputs


def _judge(trial: Trial, inputs: InputSet, change: Change) -> None:
    inputs.poison(_GARBAGE)
    smoke(trial.run(inputs), inputs)
    if fault := strained_fault(trial, inputs, change):
        raise StageFailedError(_STAGE, Status.WRONG, f"on {change.name}: {fault}")
