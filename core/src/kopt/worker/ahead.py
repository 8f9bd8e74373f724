"""Building a candidate for a target in a candidate process, without running anything of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError
from kopt.evaluator import Compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from kopt.model.candidate import Candidate
    from kopt.model.evaluation import Build
    from kopt.model.values import CallSpec
    from kopt.worker.judge import Built
    from kopt.worker.pool import ProcessRecipe
    from kopt.worker.process import CandidateProcess


class TargetBuild:
    """One candidate, one target, one process, which ends with it."""

    def __init__(
        self, recipe: ProcessRecipe, target: str, listing: str | None, seconds: float
    ) -> None:
        """``listing``: of which kind, or None; ``seconds``: the deadline of each step."""
        told: dict[str, str | None] = {"architecture": target}
        if target != "native":  # whatever device is here, this is for one that need not be
            told["device"] = None
        self._recipe = replace(recipe, opening={**recipe.opening, **told})
        self._target = target
        self._listing = listing
        self._seconds = seconds

    def run(
        self,
        build_in: Callable[[CandidateProcess, Candidate], Built],
        candidate: Candidate,
        call: CallSpec,
    ) -> Compiled:
        """Return what came of it; every failure of the candidate is in the answer."""
        process = self._recipe.ready(self._recipe.start())
        try:
            build = build_in(process, candidate).build
            return self._compiled(process, build, {"key": candidate.id}, call.to_json())
        except CandidateError as error:
            return Compiled(target=self._target, status=error.status, fault=error.detail)
        finally:
            process.kill()

    def _compiled(
        self, process: CandidateProcess, build: Build, key: dict[str, Any], call: dict[str, Any]
    ) -> Compiled:
        if self._listing:  # whether there is such a listing is known at once
            process.order("listing", self._seconds, kind=self._listing, call=None, **key)
        found = Compiled(target=self._target, build=build)
        if self._target != "native":
            reply = process.order("ahead", self._seconds, call=call, **key)
            found = process.claim("ahead", reply, "compiled", Compiled)
        if self._listing and (found.status is None or found.kernels):
            reply = process.order("listing", self._seconds, kind=self._listing, call=call, **key)
            reply["compiled"] = {**found.to_json(), "listings": reply.get("listings")}
            found = process.claim("listing", reply, "compiled", Compiled)
        return found
