"""A verifier without a framework: judges results that are flat memoryviews, as of ``plain``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import kopt
from kopt.model.verification import StageResult, Status, Verification

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.reference import InputSet
    from kopt.model.trial import Trial

_GARBAGE = (0xFF, 0x37)
_ROUNDOFF = {"f": 2.0**-24, "d": 2.0**-53}


class PlainVerifier:
    """Two runs per workload over different garbage, then every element against the oracle."""

    @kopt.hookimpl
    def kopt_verify(self, trial: Trial) -> Verification | None:
        """Judge a built candidate; CandidateError passes through."""
        done: list[StageResult] = []
        for number, workload in enumerate(trial.problem.workloads):
            inputs = trial.reference.inputs(workload.name, trial.seed + number)
            try:
                for stage, fault in _faults(trial, inputs):
                    if fault is not None:
                        status, evidence = fault
                        failed = StageResult(stage=stage, outcome="fail", evidence=evidence)
                        return Verification(verifier="plain", status=status, stages=(*done, failed))
                    done.append(StageResult(stage=stage, outcome="pass", evidence=workload.name))
            finally:
                trial.release(inputs)
                inputs.close()
        return Verification(verifier="plain", status=Status.CORRECT, stages=tuple(done))


Fault = tuple[Status, str] | None


def _faults(trial: Trial, inputs: InputSet) -> Iterator[tuple[str, Fault]]:
    """Yield each stage with what is wrong, or None."""
    runs = []
    for garbage in _GARBAGE:
        inputs.restore()
        inputs.poison(garbage)
        claim = trial.run(inputs)
        if claim.structure != inputs.call.structure:
            yield "smoke", (Status.INVALID_OUTPUT, f"it returned {claim.structure}")
        runs.append([(name, view.tolist()) for name, view in inputs.results])
        yield "poison", _touched(trial, inputs)
    yield "written", _unwritten(inputs, runs)
    inputs.restore()
    yield "accuracy", _wrong(trial, inputs, runs[-1])


def _touched(trial: Trial, inputs: InputSet) -> Fault:
    if changed := set(inputs.changed()) - set(trial.problem.mutates):
        return Status.MUTATES_INPUT, f"it changed the input {', '.join(sorted(changed))}"
    if hurt := inputs.canaries_hurt():
        return Status.ILLEGAL_ACCESS, f"it wrote outside of {', '.join(sorted(hurt))}"
    return None


def _unwritten(inputs: InputSet, runs: list[list[tuple[str, list[Any]]]]) -> Fault:
    inputs.poison(_GARBAGE[1])
    garbage = inputs.outputs[0][0]
    (name, first), (_, second) = runs[0][0], runs[1][0]
    pairs = zip(first, second, strict=True)
    count = sum(b == garbage and a != b for a, b in pairs)
    return (Status.INCOMPLETE_WRITE, f"{name}: {count} elements not written") if count else None


def _wrong(trial: Trial, inputs: InputSet, results: list[tuple[str, list[Any]]]) -> Fault:
    for answer in trial.reference.answers(inputs):
        for (name, got), want in zip(results, answer.oracle, strict=True):
            view = dict(inputs.results)[name]
            margin = 16 * _ROUNDOFF.get(view.format, 0.0) * max(map(abs, want), default=0.0)
            for index, (mine, exact) in enumerate(zip(got, want, strict=True)):
                if not math.isclose(mine, exact, rel_tol=0.0, abs_tol=margin):
                    return Status.WRONG, f"{name}[{index}] is {mine!r}, the oracle's is {exact!r}"
    return None
