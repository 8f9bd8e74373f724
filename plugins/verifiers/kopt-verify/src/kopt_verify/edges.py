"""Stage edges: the ends of integer and boolean inputs, empty tensors, and more than 2^31 elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.reference import Change
from kopt.model.verification import StageResult
from kopt_verify.beyond import best_distribution, changeable, small_extents
from kopt_verify.huge import look_at_huge
from kopt_verify.stages import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.trial import Trial
    from kopt_verify.beyond import Beyond, Look

_STAGE = "edges"
_MOST_EMPTY = 2


def check_edges(trial: Trial, beyond: Beyond) -> StageResult:
    """Look at a candidate at the ends of what its inputs may be, in a process of its own.

    Raises StageFailedError where it is wrong on values that the problem has. What it does with
    empty tensors, and with more than 2^31 elements, is said only.
    """
    said: list[str] = []
    for change in _changes(trial, beyond.workload):
        look = beyond.look(change, trial.seed)
        if look is None:
            continue
        refused = look.kind == "refused" and not change.extents  # another shape may be refused
        if refused or (look.kind == "wrong" and 0 not in change.extents.values()):
            raise StageFailedError(_STAGE, look.status, f"on {look.change}: {look.said}")
        said.append(_words(look))
    unlooked, huge = look_at_huge(trial, beyond)
    if huge is not None:
        said.append(_words(huge))
    if not said:
        evidence = "no integer or boolean inputs, and the reference takes no empty tensors"
        return StageResult(stage=_STAGE, outcome="not run", evidence=f"{evidence}; {unlooked}")
    evidence = "; ".join(filter(None, [*said, unlooked]))
    return StageResult(stage=_STAGE, outcome="pass", evidence=evidence)


def _words(look: Look) -> str:
    words = {"right": "right on", "refused": "refuses"}
    return f"{words.get(look.kind, f'SILENTLY WRONG ({look.status}) on')} {look.change}"


def _changes(trial: Trial, workload: str) -> Iterator[Change]:
    reference = trial.reference
    how = best_distribution(reference)
    for content in ("lowest", "highest"):
        name = f"every integer and boolean at its {content}"
        small = small_extents(reference, workload)
        yield Change(name, small, content=content, distribution=how)
    for name in list(changeable(reference, workload))[:_MOST_EMPTY]:
        yield Change(f"{name}=0", {name: 0}, distribution=how)
