"""Whether results depend on calls before or after: same addresses, new content, many calls, two in a row.

And whether they depend on what else the device does meanwhile.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from kopt.model.verification import StageResult, Status
from kopt_verify.conditioning import compare_twice
from kopt_verify.load import other_work
from kopt_verify.stages import StageFailedError, compare_bits, smoke
from kopt_verify.standing import fits, smallest_workload, taken, yardsticks_for

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from kopt.model.reference import InputSet
    from kopt.model.trial import Trial
    from kopt.model.values import CallClaim

_STAGE = "determinism"
_GARBAGE = 0xFF
_COPIES = 1
"""Times the compulsory bytes that copies of the results take at most."""
_PAIR = 3
"""Times the compulsory bytes that a second input set and copies take at most."""
_NEXT = 0xF0110
_REPEATS = (1, 1, 20, 1)
"""Launches before each look at the results; the last of them is what is looked at."""
_MOST_LOADED = 64
_LOADED_SECONDS = 1.0
"""Calls beside other work: so many, or as many as begin within that time."""
_SLOW_SECONDS = 2.0
"""A call that takes longer by itself is not repeated beside other work: it has a deadline."""


def recheck(trial: Trial, inputs: InputSet, claim: CallClaim) -> StageResult:
    """Judge what a timed call left in ``inputs.results``, on content that was new to that block."""
    stage = "timed outputs"
    try:
        smoke(claim, inputs)
    except StageFailedError as failure:
        return StageResult(stage=stage, outcome="fail", evidence=failure.evidence)
    fault = _fault(trial, inputs, taken(trial, inputs))
    if fault:
        return StageResult(
            stage=stage, outcome="fail",
            evidence=f"{inputs.workload}: the timed calls did not compute it: {fault}",
        )  # fmt: skip
    return StageResult(
        stage=stage, outcome="pass", evidence=f"{inputs.workload}: right on new content, as timed"
    )


class LastInputs:
    """Inputs of the smallest workload, for looks that need no second seed. Use it as a context."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._workload = smallest_workload(trial)
        self._seed = random.Random(trial.seed ^ 0x5EED).randrange(1 << 31)
        self._inputs: InputSet | None = None

    def lent(self) -> InputSet:
        """Return them, drawn at the first call and after each ``make_way`` that gave them back."""
        if self._inputs is None:
            self._inputs = self._trial.reference.inputs(self._workload, self._seed)
        return self._inputs

    def make_way(self) -> None:
        """Give large ones back: what comes next has inputs of its own."""
        if not fits(self._trial.reference, self._workload, 1):
            self._give_back()

    def __enter__(self) -> LastInputs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back(release=error is None)

    def _give_back(self, *, release: bool = True) -> None:
        inputs, self._inputs = self._inputs, None
        if inputs is None:
            return
        try:
            if release:  # else the process may be gone
                self._trial.release(inputs)
        finally:
            inputs.close()


def check_call_order(trial: Trial, inputs: InputSet) -> StageResult:
    """Run x, other content at the same addresses, x again, and x many times.

    Raises StageFailedError: WRONG where a result is that of another call, NON_DETERMINISTIC where
    the same call is right at one time and wrong at another.
    """
    if not fits(trial.reference, inputs.workload, _COPIES):
        return _without_copies(trial, inputs)
    seed = inputs.seed
    first = [result.clone() for result in _run(trial, inputs)]
    faults = [_fault(trial, inputs, first)]
    inputs.redraw(random.Random(seed).randrange(1 << 31))
    fault = _fault(trial, inputs, _run(trial, inputs))
    if fault and not faults[0]:
        raise _failed(
            Status.WRONG, f"right at first, then other content at the same addresses: {fault}"
        )
    inputs.redraw(seed)
    different, took = 0, 0.0
    for launches in _REPEATS:
        began = time.monotonic()
        again = _run(trial, inputs, 1 if trial.problem.mutates else launches)
        took = time.monotonic() - began
        same = _same_bits(first, again)
        different += not same
        faults.append(faults[0] if same else _fault(trial, inputs, again))
    _refuse(faults)
    loaded = "too slow for calls beside other work"
    if took < _SLOW_SECONDS:
        loaded = _beside_other_work(trial, inputs, first)
    _keeps_results(trial, inputs)
    said = f"new content at the same addresses, then {sum(_REPEATS)} calls more: the same bits every time"
    if different:
        said = (
            f"{different} of {len(_REPEATS)} repeats differ in bits, each within the error bound (as "
            "sums in any order do)"
        )
    return StageResult(stage=_STAGE, outcome="pass", evidence=f"{said}; {loaded}")


def _same_bits(first: list[torch.Tensor], again: list[torch.Tensor]) -> bool:
    return not any(compare_bits(a, b)[0] for a, b in zip(first, again, strict=True))


def _beside_other_work(trial: Trial, inputs: InputSet, first: list[torch.Tensor]) -> str:
    """Call again and again while other work takes turns with it; say how that went.

    Raises StageFailedError: NON_DETERMINISTIC where a call is wrong which is right undisturbed.
    """
    looks = different = 0
    end = time.monotonic() + _LOADED_SECONDS
    while looks < _MOST_LOADED and (not looks or time.monotonic() < end):
        again, looks = _run(trial, inputs, beside=True), looks + 1
        if _same_bits(first, again):
            continue
        different += 1
        if fault := _fault(trial, inputs, again):
            if later := _fault(trial, inputs, _run(trial, inputs)):
                raise _failed(
                    Status.WRONG, f"right in the first looks, wrong from then on: {later}"
                )
            raise _failed(
                Status.NON_DETERMINISTIC,
                f"call {looks} beside other work is wrong, those before and after right: {fault}",
            )
    bits = f"{different} differ in bits" if different else "the same bits"
    return f"{looks} calls beside other work: {bits}"


def _keeps_results(trial: Trial, inputs: InputSet) -> None:
    """Look at a call's results after the next call: a caller may hold on to them.

    Raises StageFailedError.
    """
    reference = trial.reference
    if trial.problem.mutates or not fits(reference, inputs.workload, _PAIR):
        return
    seed = random.Random(inputs.seed ^ _NEXT).randrange(1 << 31)
    following = reference.inputs(inputs.workload, seed)
    try:
        for each in (inputs, following):
            each.poison(_GARBAGE)
        for each, claim in zip((inputs, following), trial.in_a_row(inputs, following), strict=True):
            smoke(claim, each)
        if fault := _fault(trial, inputs, taken(trial, inputs)):
            raise _failed(Status.WRONG, f"the next call spoils what this one returned: {fault}")
        trial.release(following)
    finally:
        following.close()


def _without_copies(trial: Trial, inputs: InputSet) -> StageResult:
    """Judge two calls with different content where they lie."""
    for number in range(2):
        if number:
            inputs.redraw(random.Random(inputs.seed).randrange(1 << 31))
        if fault := _fault(trial, inputs, _run(trial, inputs)):
            raise _failed(Status.WRONG, f"call {number + 1} on changing content: {fault}")
    return StageResult(
        stage=_STAGE, outcome="pass",
        evidence="right on new content at the same addresses; too large to repeat and compare bits",
    )  # fmt: skip


def _refuse(faults: list[str]) -> None:
    """Raise where calls on the same inputs were wrong."""
    wrong = [bool(fault) for fault in faults]
    if not any(wrong):
        return
    at = wrong.index(True)
    if all(wrong[at:]):
        when = "" if at == 0 else f"right in the first {at} looks, wrong from then on: "
        raise _failed(Status.WRONG, f"{when}{faults[at]}")
    raise _failed(
        Status.NON_DETERMINISTIC,
        f"{sum(wrong)} of {len(wrong)} calls on the same inputs are wrong, the others right: "
        f"{faults[at]}",
    )


def _failed(status: Status, evidence: str) -> StageFailedError:
    return StageFailedError(_STAGE, status, evidence)


def _fault(trial: Trial, inputs: InputSet, results: list[torch.Tensor]) -> str:
    """Return what is wrong with results for the inputs' present content, or an empty text."""
    parts = yardsticks_for(trial.reference, inputs)
    found = compare_twice(trial.reference, inputs, results, parts)
    return "; ".join(comparison.evidence for comparison in found if not comparison.passed)


def _run(
    trial: Trial, inputs: InputSet, launches: int = 1, *, beside: bool = False
) -> list[torch.Tensor]:
    """Return results where they lie, or copies where ``inputs`` were changed and are restored.

    ``beside``: one launch beside other work, for which no other run of kopt's is let through: it
    would be disturbed.
    """
    inputs.poison(_GARBAGE)
    if beside:
        with other_work(trial.reference.device.kind):
            (claim,) = trial.in_a_row(inputs)
    else:
        claim = trial.run(inputs, launches)
    smoke(claim, inputs)
    return taken(trial, inputs)
