"""The plugin: runs the stages in order, cheap first, and stops at the first that fails."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Literal

from pydantic import Field

import kopt
from kopt.model.check import Check
from kopt.model.verification import StageResult, Status, Verification
from kopt_verify.likely_causes import likely_cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt.model.oracle import OracleReport
    from kopt.model.reference import InputSet, Reference
    from kopt.model.trial import Trial
    from kopt.model.values import CallClaim
    from kopt_verify.standing import Questions

STAGES = (
    "oracle", "parse", "build", "smoke", "poison", "accuracy",
    "shapes", "determinism", "stability", "edges", "origin", "sanitizer",
)  # fmt: skip


class Verify:
    """The stages of docs/explanation/verification."""

    class Options(kopt.Options):
        """Options of the verifier."""

        seeds: int = Field(default=1, gt=0)
        """Secret seeds per workload and distribution in a search."""
        winner_seeds: int = Field(default=3, gt=0)
        """The same for a winner."""
        layouts: Literal["report", "refuse"] = "report"
        """What a silently wrong result on arguments that are not contiguous costs a winner."""
        sanitizers: bool = True
        """Whether a winner is also run in an instrumented build, where the backend has one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._questions: Questions | None = None
        self._oracle: StageResult | None = None

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """It needs nothing beyond its requirements."""
        return [Check(name="verify", state="ok", detail=f"stages {', '.join(STAGES)}")]

    @kopt.hookimpl
    def kopt_warm_up(self, purpose: str) -> None:
        """Import all of the verifier before any candidate runs.

        A candidate can write wherever its user can, these files too: what the judge has imported by
        then, it cannot change.
        """
        if purpose == "reference":
            import kopt_verify

            for module in pkgutil.iter_modules(kopt_verify.__path__):
                importlib.import_module(f"{kopt_verify.__name__}.{module.name}")

    @kopt.hookimpl
    def kopt_verify(self, trial: Trial) -> Verification | None:
        """Judge a built candidate (so parse and build have passed)."""
        from kopt_verify.battery import tested
        from kopt_verify.stages import StageFailedError, run_stages, timed
        from kopt_verify.standing import Questions

        self._questions = self._questions or Questions()
        self._oracle = self._oracle or tested(trial.reference)
        if self._oracle.outcome == "fail":
            return Verification(
                verifier="verify", status=Status.ORACLE_DEGENERATE, stages=_padded([self._oracle])
            )
        knobs = ", ".join(f"{name}={value}" for name, value in trial.candidate.chosen.items())
        done = [
            self._oracle,
            StageResult(stage="parse", outcome="pass", evidence=f"entry {trial.candidate.entry}"),
            StageResult(
                stage="build", outcome="pass",
                evidence=f"{trial.build.backend} in {trial.build.seconds:.2f} s"
                + (f", {knobs}" if knobs else ""),
            ),
        ]  # fmt: skip
        winner = trial.depth == "winner"
        later: list[StageResult] = []
        seeds = self.options.winner_seeds if winner else self.options.seeds
        try:
            later, ratio = run_stages(trial, seeds, self._questions)
            if winner:
                for stage in timed(self._winner_stages(trial)):
                    later = [*later, stage]
        except StageFailedError as failure:
            cause = likely_cause(trial) if failure.stage == "accuracy" else ""
            done += [*(failure.passed or later), StageResult(
                stage=failure.stage, outcome="fail", evidence=failure.evidence + cause
            )]  # fmt: skip
            return Verification(
                verifier="verify", status=failure.status, stages=_padded(done),
                error_ratio=failure.ratio,
            )  # fmt: skip
        return Verification(
            verifier="verify", status=Status.CORRECT, stages=_padded([*done, *later]),
            error_ratio=ratio,
        )  # fmt: skip

    def _winner_stages(self, trial: Trial) -> Iterator[StageResult]:
        """Yield the stages that only a winner meets. Raises StageFailedError for one that fails."""
        from kopt_verify.beyond import Beyond
        from kopt_verify.edges import check_edges
        from kopt_verify.order import LastInputs, check_call_order
        from kopt_verify.origin import check_origin
        from kopt_verify.sanitizer import check_sanitizers, small_inputs
        from kopt_verify.shapes import check_shapes
        from kopt_verify.stability import check_stability
        from kopt_verify.standing import smallest_workload

        with Beyond(trial, smallest_workload(trial)) as beyond, LastInputs(trial) as last:
            refuse = self.options.layouts == "refuse"
            yield check_shapes(trial, beyond, refuse_layouts=refuse)
            yield check_call_order(trial, last.lent())
            last.make_way()
            yield check_stability(trial, beyond)
            yield check_edges(trial, beyond)
            yield check_origin(trial, last.lent(), beyond)
            if self.options.sanitizers:
                with small_inputs(trial, last.lent()) as lent:
                    yield check_sanitizers(trial, lent)

    @kopt.hookimpl
    def kopt_recheck(self, trial: Trial, inputs: InputSet, claim: CallClaim) -> StageResult | None:
        """Judge what a timed call left, by the rules of smoke and accuracy."""
        from kopt_verify.order import recheck

        return recheck(trial, inputs, claim)

    @kopt.hookimpl
    def kopt_test_oracle(self, reference: Reference) -> OracleReport:
        """Judge known-wrong results by the rule of the accuracy stage."""
        from kopt_verify.battery import check_oracle

        return check_oracle(reference)


def _padded(done: list[StageResult]) -> tuple[StageResult, ...]:
    missing = STAGES[len(done) :]
    return (*done, *(StageResult(stage=name, outcome="not run") for name in missing))
