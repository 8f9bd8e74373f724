"""The strategy: first kernels where nothing is right yet, then ideas, code, repairs and lessons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import kopt
from kopt.model.check import Check
from kopt.model.completion import ExpectedCalls
from kopt.model.history import History
from kopt.model.verification import Status
from kopt_rewrite.asking import give_up
from kopt_rewrite.expecting import expected_calls
from kopt_rewrite.knowledge import load
from kopt_rewrite.options import RewriteOptions
from kopt_rewrite.round import Asker, Round
from kopt_rewrite.situation import known_language
from kopt_rewrite.writing import first_kernels, improvements

if TYPE_CHECKING:
    from kopt.model.budget import Budget
    from kopt.model.candidate import Candidate
    from kopt.model.completion import CompletionRequest, LanguageModel
    from kopt.model.device import Target
    from kopt.model.diagnosis import Diagnosis
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem, Signature


class Rewrite:
    """Has a language model write kernels; what it answers can become a candidate, and nothing else."""

    Options = RewriteOptions
    needs_llm = True

    def __init__(self, options: RewriteOptions | None = None) -> None:
        self.options = options or RewriteOptions()
        self._told: set[str] = set()
        self._open: list[CompletionRequest] = []
        self._asker: Asker | None = None
        """Who asked for first kernels last."""

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say how many texts there are for prompts."""
        try:
            texts = load(self.options.knowledge)
        except kopt.KoptError as error:
            fix = "put the file right, or leave its folder out of strategy.rewrite.knowledge"
            return [Check(name="rewrite knowledge", state="fail", detail=str(error), fix=fix)]
        return [Check(name="rewrite knowledge", state="ok", detail=f"{len(texts)} texts")]

    @kopt.hookimpl
    def kopt_propose(
        self,
        problem: Problem,
        signature: Signature,
        target: Target,
        parent: Evaluation | None,
        diagnoses: Sequence[Diagnosis],
        history: History,
        llm: LanguageModel | None,
    ) -> Iterable[Candidate]:
        """Return what a language model wrote; nothing without one or in an unknown language."""
        if llm is None or not known_language(target.language) or not signature.workloads:
            return []
        asker = Asker(
            Round.of(problem, signature, target, history, self.options), llm, self._told, self._open
        )
        if parent is None:
            self._asker = asker
            return first_kernels(asker)
        give_up(asker)  # one first kernel is right: nobody waits for the others
        if parent.status is not Status.CORRECT or parent.measurement is None:
            return []
        return improvements(asker, parent, diagnoses)

    @kopt.hookimpl
    def kopt_candidate_evaluated(self, evaluation: Evaluation) -> None:
        """Have nobody write other first kernels once one is right, before it is profiled."""
        if evaluation.measured and self._asker is not None:
            give_up(self._asker)

    @kopt.hookimpl
    def kopt_expect(
        self, problem: Problem, signature: Signature, target: Target, budget: Budget, others: int
    ) -> Iterable[ExpectedCalls]:
        """Return the requests of a run of the usual length, with the prompts' real sizes."""
        if not known_language(target.language) or not signature.workloads:
            return []
        found = Round.of(problem, signature, target, History(), self.options)
        return expected_calls(found, budget, others)
