"""What a history tells of ideas: whose they are, what became of them, and when they were asked for.

Strategies answer by their arguments alone. So what has to be known of earlier rounds stands in the
candidates' idea texts: how many evaluations there were when the idea was asked for, and when its
code was proposed. With these the same requests can be made again, and are answered from memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kopt.model.verification import Status

if TYPE_CHECKING:
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History

STRATEGY = "rewrite"
FIRST = "first kernel"
_MARK = re.compile(r" \[(\d{1,9}):(\d{1,9})\]$")
_NOT_ITS_FAULT = (Status.INFRASTRUCTURE_ERROR, Status.ORACLE_DEGENERATE, Status.TIMING_NOT_CREDIBLE)


class Mark(NamedTuple):
    """Where in a history an idea comes from."""

    analysed: int
    """Evaluations that there were when the idea was asked for."""
    proposed: int
    """Evaluations that there were when this candidate was."""


def marked(text: str, analysed: int, proposed: int) -> str:
    """Return an idea's text with its mark."""
    return f"{plain(text)} [{analysed}:{proposed}]"


def plain(text: str) -> str:
    """Return an idea's text without its mark."""
    return _MARK.sub("", text)


def mark_of(evaluation: Evaluation) -> Mark | None:
    """Return the mark of a candidate of this strategy; None for any other's."""
    found = _MARK.search(evaluation.candidate.idea)
    if evaluation.candidate.strategy != STRATEGY or not found:
        return None
    return Mark(int(found[1]), int(found[2]))


def prefix(history: History, count: int) -> History:
    """Return what there was when ``count`` candidates had been evaluated."""
    return history.until(count)


def own(history: History) -> list[Evaluation]:
    """Return the evaluations of this strategy's candidates, in their order."""
    return [e for e in history if mark_of(e) is not None]


def attempts_before(evaluation: Evaluation, history: History) -> list[Evaluation]:
    """Return the failed candidates that this one repairs, the last first."""
    chain: list[Evaluation] = []
    seen = {evaluation.id}
    at = evaluation
    while at.candidate.parents:
        before = history.get(at.candidate.parents[0])
        if before is None or before.id in seen or mark_of(before) is None:
            break
        if before.status is Status.CORRECT:
            break
        chain.append(before)
        seen.add(before.id)
        at = before
    return chain


def children(parent: Evaluation, history: History) -> list[Evaluation]:
    """Return what this strategy made of a parent, repairs left out."""
    return [e for e in own(history) if e.candidate.parents[:1] == (parent.id,)]


def to_repair(history: History, repairs: int, *, first: bool) -> list[Evaluation]:
    """Return the failures since the last proposals, of first kernels all, that may be repaired.

    :param repairs: how often one idea may be repaired.
    :param first: whether first kernels are still wanted, because nothing is correct.
    """
    mine = own(history)
    since = max((mark.proposed for e in mine if (mark := mark_of(e))), default=0)
    late = {e.id for e in list(history)[since:]}
    repaired = {e.candidate.parents[0] for e in mine if e.candidate.parents}
    found = []
    for evaluation in mine:
        if evaluation.status is Status.CORRECT or evaluation.status in _NOT_ITS_FAULT:
            continue
        # First kernels come one by one: what is asked of an earlier one may still be on its way.
        if (not first and evaluation.id not in late) or evaluation.id in repaired:
            continue
        chain = attempts_before(evaluation, history)
        root = (chain or [evaluation])[-1]
        if len(chain) < repairs and (first or root.candidate.parents):
            found.append(evaluation)
    return found


def analyses(history: History) -> list[int]:
    """Return after how many evaluations ideas were asked for, in order, each once."""
    return sorted({mark.analysed for e in own(history) if (mark := mark_of(e))})
