"""The judge: what limits a kernel, with its evidence and what could be gained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

import kopt
from kopt.model.check import Check
from kopt.model.diagnosis import Diagnosis
from kopt.model.verification import Status
from kopt_roofline.facts import complete_call, derived_metrics, facts_of
from kopt_roofline.merging import merge
from kopt_roofline.ranking import rank
from kopt_roofline.rules import Rulebook, rulebook
from kopt_roofline.scope import Scope

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.model.diagnosis import Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem, Signature

NAME = "roofline"
_AT_BOUND = "at-bound"


class Roofline:
    """Rules over metrics, ranked by the factor that each finding could bring to the call."""

    class Options(kopt.Options):
        """How much is said."""

        findings: int = Field(default=8, gt=0)
        """At most so many are reported."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say how many rules there are."""
        book = rulebook()
        names = {rule.name for rule in book.rules}
        detail = f"{len(book.rules)} rules for {len(names)} bottlenecks"
        return [Check(name="roofline rules", state="ok", detail=detail)]

    @kopt.hookimpl
    def kopt_judge(
        self,
        problem: Problem,
        signature: Signature,
        evaluation: Evaluation,
        profiles: Sequence[Profile],
        device: Device,
    ) -> Diagnosis | None:
        """Say what limits a correct candidate; None for any other, or where no rule holds."""
        if evaluation.status is not Status.CORRECT or not signature.workloads:
            return None
        book = rulebook()
        facts = facts_of(problem, signature, device)
        merged = merge(profiles)
        derived = derived_metrics(problem, signature, evaluation, device)
        merged.call = derived | merged.call
        complete_call(merged.call)
        ranking = rank(book, merged, facts, device.kind)
        if not ranking.findings:
            return None
        first = ranking.findings[0]
        headroom = Scope(merged.call, book.values).get("headroom")
        if headroom is not None and first.bottleneck == _AT_BOUND and first.gain is not None:
            headroom = min(headroom, first.gain)  # a bound leaves out what starting a call costs
        return Diagnosis(
            judge=NAME,
            bottleneck=first.bottleneck,
            evidence=first.evidence,
            headroom=None if headroom is None else round(max(1.0, headroom), 3),
            advice=_advice(book, first.moves),
            findings=ranking.findings[: self.options.findings],
            missing=ranking.missing,
        )


def _advice(book: Rulebook, moves: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{move}: {book.moves[move]}" for move in moves)
