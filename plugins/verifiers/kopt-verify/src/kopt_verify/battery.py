"""The oracle is tested first: known-wrong results go through the rule that candidates meet."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from kopt.model.oracle import OracleFinding, OracleReport
from kopt_verify.accuracy import compare
from kopt_verify.mutations import Case, Results, mutations_of
from kopt_verify.standing import Question

if TYPE_CHECKING:
    from kopt.model.reference import Reference

_SEED, _OTHER_SEED = 1, 2
_HALF = (torch.float16, torch.bfloat16)
_CONSTANT = ("zeros", "constant", "stale")
"""Where one of these equals the right result everywhere, the reference returns a constant."""


@dataclass
class _Outcome:
    """What became of one mutation, over the distributions."""

    tried: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Distribution to evidence."""
    accepted: dict[str, str] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    tolerated: bool = False


def check_oracle(reference: Reference) -> OracleReport:
    """Judge every known-wrong result on the smallest workload, on each distribution."""
    workloads = reference.signature.workloads
    workload = min(workloads, key=lambda name: workloads[name].compulsory_bytes)
    outcomes: dict[str, _Outcome] = {}
    tolerance = 0.0
    for distribution in reference.distributions:
        with closing(Question(reference, workload, _SEED, distribution, keep=True)) as question:
            case = _case(reference, question)
            tolerance = _tolerance(case.expected)
            for name, mutate in mutations_of(case).items():
                outcome = outcomes.setdefault(name, _Outcome())
                wrong = mutate(case)
                if wrong is not None:
                    _judge(outcome, question, case, wrong, tolerance)
    findings = tuple(_finding(name, found) for name, found in outcomes.items() if found.tried)
    return OracleReport(
        verifier="verify", workload=workload, distributions=reference.distributions,
        tolerance=tolerance, findings=findings, notes=_notes(outcomes, findings),
    )  # fmt: skip


def _case(reference: Reference, question: Question) -> Case:
    inputs = question.inputs
    others = reference.inputs(inputs.workload, _OTHER_SEED, inputs.distribution)
    with closing(others):
        other = [result.clone() for result in reference.expected(others)]
    expected = [result.clone() for result in reference.expected(inputs)]
    return Case(reference, inputs, expected, other)


def _judge(
    outcome: _Outcome, question: Question, case: Case, wrong: Results, tolerance: float
) -> None:
    distribution = question.inputs.distribution
    outcome.tried.append(distribution)
    if distribution == "native":
        outcome.tolerated = _within(tolerance, wrong, case.expected)
    if all(map(_equal, wrong, case.expected)):
        outcome.equal.append(distribution)
    passed, evidence = _verdict(question, wrong, case.reference.problem.tolerance.factor)
    (outcome.accepted if passed else outcome.rejected)[distribution] = evidence


def _verdict(question: Question, results: Results, factor: float | None) -> tuple[bool, str]:
    """Compare as the accuracy stage does; return whether all passed, and the evidence."""
    names = [name for name, _ in question.inputs.results]
    found = compare(names, results, question.yardsticks(), factor)
    failed = [comparison for comparison in found if not comparison.passed]
    said = "; ".join(comparison.evidence for comparison in failed or found)
    return not failed, said


def _equal(mine: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether all values are equal; a NaN is equal to a NaN, and 0 to -0."""
    return bool(((mine == right) | ((mine != mine) & (right != right))).all())


def _tolerance(expected: Results) -> float:
    return 1e-2 if any(result.dtype in _HALF for result in expected) else 1e-4


def _within(tolerance: float, results: Results, expected: Results) -> bool:
    return all(
        torch.allclose(mine.double(), right.double(), rtol=tolerance, atol=tolerance)
        for mine, right in zip(results, expected, strict=True)
    )


def _finding(name: str, found: _Outcome) -> OracleFinding:
    same = len(found.equal) == len(found.tried)
    evidence = found.rejected or found.accepted
    return OracleFinding(
        mutation=name, rejected_by=tuple(found.rejected), native_rejects="native" in found.rejected,
        tolerance_accepts=found.tolerated, equivalent=same and name not in _CONSTANT,
        survives=not found.rejected and (not same or name in _CONSTANT),
        evidence=next(f"{where}: {said}" for where, said in evidence.items()),
    )  # fmt: skip


def _notes(outcomes: dict[str, _Outcome], findings: tuple[OracleFinding, ...]) -> tuple[str, ...]:
    notes: list[str] = []
    surviving = [finding.mutation for finding in findings if finding.survives]
    constant = [n for n in surviving if len(outcomes[n].equal) == len(outcomes[n].tried)]
    if constant:
        notes.append(
            "degenerate: the reference returns the same whatever its inputs are "
            f"({', '.join(constant)}); change the problem, no kernel for it can be told from a "
            "constant"
        )
    if left := [name for name in surviving if name not in constant]:
        notes.append(
            f"degenerate: this reference cannot tell {', '.join(left)} from a right result on any "
            "of its inputs; give the problem inputs on which they differ"
        )
    if missed := [name for name, found in outcomes.items() if not found.tried]:
        notes.append(f"not tried, the problem has nothing to do it to: {', '.join(missed)}")
    return tuple(notes)
