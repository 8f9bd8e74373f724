"""Candidates that are one: the same binary, launched in the same way, is judged once."""

from __future__ import annotations

from kopt.model.candidate import Candidate
from kopt.model.evaluation import Build, Evaluation
from kopt.model.verification import Status

_BY_CHANCE = {Status.INFRASTRUCTURE_ERROR, Status.TIMING_NOT_CREDIBLE, Status.HANG, Status.OOM}
"""Ends that another try may not have."""


class Twins:
    """What was judged in this session, by binary and launches."""

    def __init__(self) -> None:
        self._judged: dict[tuple[str, str, str], Evaluation] = {}

    def of(self, candidate: Candidate, build: Build) -> Evaluation | None:
        """Return the evaluation of a candidate that is the same as an earlier one, or None."""
        key = _key(build)
        first = self._judged.get(key) if key else None
        if first is None or first.id == candidate.id:
            return None
        return first.model_copy(
            update={"candidate": candidate, "build": build, "same_as": first.id, "seconds": 0.0}
        )

    def add(self, evaluation: Evaluation) -> None:
        """Remember a verdict."""
        key = _key(evaluation.build) if evaluation.build else None
        if key and not evaluation.same_as and evaluation.status not in _BY_CHANCE:
            self._judged.setdefault(key, evaluation)


def _key(build: Build) -> tuple[str, str, str] | None:
    if not build.binary_id or not build.launch_id:
        return None
    return build.backend, build.binary_id, build.launch_id
