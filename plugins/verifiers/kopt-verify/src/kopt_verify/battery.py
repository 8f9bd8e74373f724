"""The oracle is tested first: known-wrong results go through the rule that candidates meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from kopt.errors import ProblemError
from kopt.model.oracle import OracleFinding, OracleReport
from kopt.model.verification import StageResult
from kopt_torch.tensors import all_finite
from kopt_verify.accuracy import Yardstick
from kopt_verify.conditioning import SecondLook
from kopt_verify.mutations import Case, Changed, Mutation, Results, mutations_of
from kopt_verify.sampling import Sampler

if TYPE_CHECKING:
    from kopt.model.reference import InputSet, Reference

_SEED, _OTHER_SEED = 1, 2
_HALF = (torch.float16, torch.bfloat16)
_CONSTANT = ("zeros", "constant", "stale", "NaN everywhere", "arguments ignored")
"""Where one of these equals the right result everywhere, the reference returns a constant."""
_EXACT = 2.0**-40
"""Part of a result's size that the float64 of one right result may differ from another's."""


@dataclass
class _Outcome:
    """What became of one mutation, over the distributions on which it was tried."""

    tried: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Distribution to evidence; it is not tried again."""
    accepted: dict[str, str] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    tolerated: bool = False

    def forget_all_but(self, distributions: tuple[str, ...]) -> None:
        """Take back what was rejected on inputs that no candidate will be asked on."""
        for name in [name for name in self.rejected if name not in distributions]:
            del self.rejected[name]
            self.accepted[name] = "rejected on a sample; the reference is not finite on the whole"

    @property
    def same(self) -> bool:
        """Whether it is the right result wherever it was tried."""
        return len(self.equal) == len(self.tried)


@dataclass(frozen=True)
class _Question:
    """A case with what its results should be."""

    distribution: str
    look: SecondLook
    yardsticks: list[Yardstick]
    case: Case

    def verdict(self, results: Results) -> tuple[bool, str]:
        """Compare as the accuracy stage does; return whether all passed, and the evidence."""
        found = self.look.compare(results, [(slice(None), self.yardsticks)])
        failed = [comparison for comparison in found if not comparison.passed]
        said = "; ".join(comparison.evidence for comparison in failed or found)
        return not failed, said

    def is_right(self, mutation: Mutation, results: Results) -> bool:
        """Whether a result is right after all: equal, or a changed input's is in float64."""
        if all(map(_equal, results, self.case.expected)):
            return True
        exact = mutation.in_float64(self.case) if isinstance(mutation, Changed) else None
        if exact is None:
            return False
        return all(map(_equal_in_float64, exact, (each.oracle for each in self.yardsticks)))


class Battery:
    """Known-wrong results of one reference, on a sample of its smallest workload."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        workloads = reference.signature.workloads
        self._workload = min(workloads, key=lambda name: workloads[name].compulsory_bytes)
        self._sampler = Sampler(reference, self._workload)
        self._outcomes: dict[str, _Outcome] = {}
        self._tolerance = 0.0

    def run(self) -> OracleReport:
        """Judge on every distribution, then what survives on sharper ones; keep those that tell."""
        reference = self._reference
        for distribution in reference.distributions:
            self._judge(distribution)
        reference.sharpen([name for name in reference.sharper if self._judge(name)])
        for found in self._outcomes.values():
            found.forget_all_but(reference.distributions)
        findings = tuple(
            _finding(name, found) for name, found in self._outcomes.items() if found.tried
        )
        return OracleReport(
            verifier="verify", workload=self._workload, distributions=reference.distributions,
            tolerance=self._tolerance, findings=findings,
            constant=_constant(self._outcomes, findings),
            notes=(*self._said_of_inputs(), *_notes(self._outcomes, findings)),
        )  # fmt: skip

    def _judge(self, distribution: str) -> bool:
        """Put what nothing has rejected through the rule; return whether any was rejected now."""
        if self._outcomes and all(found.rejected for found in self._outcomes.values()):
            return False
        with self._asked(distribution) as question:
            if question is None:
                return False
            for name, mutation in mutations_of(question.case).items():
                outcome = self._outcomes.setdefault(name, _Outcome())
                wrong = None if outcome.rejected else mutation(question.case)
                if wrong is not None:
                    self._judge_one(outcome, question, mutation, wrong)
        return any(distribution in found.rejected for found in self._outcomes.values())

    def _judge_one(
        self, outcome: _Outcome, question: _Question, mutation: Mutation, wrong: Results
    ) -> None:
        distribution = question.distribution
        outcome.tried.append(distribution)
        if distribution == "native":
            self._tolerance = _tolerance(question.case.expected)
            outcome.tolerated = _within(self._tolerance, wrong, question.case.expected)
        passed, evidence = question.verdict(wrong)
        (outcome.accepted if passed else outcome.rejected)[distribution] = evidence
        if passed and question.is_right(mutation, wrong):
            outcome.equal.append(distribution)

    @contextmanager
    def _asked(self, distribution: str) -> Iterator[_Question | None]:
        """Draw a question; None where a sharper distribution is none for this reference."""
        with closing(self._sampler.draw(_OTHER_SEED, distribution)) as others:
            other = [result.clone() for result in self._reference.expected(others)]
        with closing(self._sampler.draw(_SEED, distribution)) as inputs:
            expected = [result.clone() for result in self._reference.expected(inputs)]
            usual = distribution in self._reference.distributions
            if not usual and not all(map(all_finite, [*expected, *other])):
                yield None
                return
            pairs = zip(expected, self._reference.oracle(inputs), strict=True)
            yield _Question(
                distribution, SecondLook(self._reference, inputs),
                [Yardstick(right, oracle) for right, oracle in pairs],
                self._case(inputs, expected, other),
            )  # fmt: skip

    def _case(self, inputs: InputSet, expected: Results, other: Results) -> Case:
        infos = self._reference.signature.workloads[self._workload].arguments
        return Case(
            tensors=inputs.tensors, kinds={info.name: info.kind for info in infos},
            run=partial(self._reference.expected_with, inputs),
            exact=partial(self._reference.oracle_with, inputs), expected=expected, other=other,
        )  # fmt: skip

    def _said_of_inputs(self) -> tuple[str, ...]:
        smaller = ", ".join(f"{was} -> {now}" for was, now in self._sampler.extents.items())
        sample = (f"tried on a sample, at smaller extents: {smaller}",) if smaller else ()
        return (*self._reference.input_notes, *sample)


def check_oracle(reference: Reference) -> OracleReport:
    """Judge every known-wrong result on the smallest workload, on each distribution.

    Afterwards ``reference.distributions`` holds those of ``reference.sharper`` too that reject
    what the usual ones let through.
    """
    return Battery(reference).run()


def tested(reference: Reference) -> StageResult:
    """Test the oracle before candidates meet it, and sum up what was found.

    It fails where the reference returns the same whatever its inputs are.
    """
    try:
        report = check_oracle(reference)
    except ProblemError as error:
        return StageResult(stage="oracle", outcome="not run", evidence=str(error))
    if report.constant:
        evidence = next(note for note in report.notes if note.startswith("degenerate"))
        return StageResult(stage="oracle", outcome="fail", evidence=evidence)
    total, left = len(report.findings), [finding.mutation for finding in report.survivors]
    same = sum(finding.equivalent for finding in report.findings)
    said = (
        f"{total - len(left) - same} of {total - same} known-wrong results are told from right ones"
    )
    if left:
        said += f", not so: {', '.join(left)}"
    added = report.distributions[2:]
    return StageResult(
        stage="oracle", outcome="pass",
        evidence=said + (f"; inputs made sharper: {', '.join(added)}" if added else ""),
    )  # fmt: skip


def _equal(mine: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether all values are equal; a NaN is equal to a NaN, and 0 to -0."""
    return bool(((mine == right) | ((mine != mine) & (right != right))).all())


def _equal_in_float64(mine: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two results differ by no more than float64's own rounding, over a sum's length."""
    if not mine.dtype.is_floating_point:
        return bool(torch.equal(mine.flatten(), right.flatten()))
    largest = float(right.abs().nan_to_num(0.0, 0.0, 0.0).amax()) if right.numel() else 0.0
    return bool(
        torch.allclose(mine.flatten(), right, rtol=0.0, atol=_EXACT * largest, equal_nan=True)
    )


def _tolerance(expected: Results) -> float:
    return 1e-2 if any(result.dtype in _HALF for result in expected) else 1e-4


def _within(tolerance: float, results: Results, expected: Results) -> bool:
    return all(
        torch.allclose(mine.double(), right.double(), rtol=tolerance, atol=tolerance)
        for mine, right in zip(results, expected, strict=True)
    )


def _finding(name: str, found: _Outcome) -> OracleFinding:
    evidence = found.rejected or found.accepted
    constant = name in _CONSTANT
    return OracleFinding(
        mutation=name, rejected_by=tuple(found.rejected), native_rejects="native" in found.rejected,
        tolerance_accepts=found.tolerated,
        equivalent=not found.rejected and found.same and not constant,
        survives=not found.rejected and (constant or not found.same),
        evidence=next(f"{where}: {said}" for where, said in evidence.items()),
    )  # fmt: skip


def _constant(
    outcomes: dict[str, _Outcome], findings: tuple[OracleFinding, ...]
) -> tuple[str, ...]:
    surviving = [finding.mutation for finding in findings if finding.survives]
    return tuple(name for name in surviving if name in _CONSTANT and outcomes[name].same)


def _notes(outcomes: dict[str, _Outcome], findings: tuple[OracleFinding, ...]) -> tuple[str, ...]:
    notes: list[str] = []
    surviving = [finding.mutation for finding in findings if finding.survives]
    constant = _constant(outcomes, findings)
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
