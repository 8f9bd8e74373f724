"""Lessons from what was expected and what was measured, one request a span of evaluations."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kopt.model.completion import Completion, CompletionRequest
from kopt_rewrite.asking import tell
from kopt_rewrite.ideas import objects_in, one_line
from kopt_rewrite.lineage import FIRST, analyses, mark_of, plain, prefix
from kopt_rewrite.outcomes import expected, observed, result, shortened

if TYPE_CHECKING:
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History
    from kopt_rewrite.round import Asker

_MOST_OUTCOMES = 12
_MOST_LESSONS = 4
_DETAIL = 800


def lessons_at(asker: Asker, analysed: int) -> list[str]:
    """Return the lessons of the first ``analysed`` evaluations, the latest last, each once.

    Evaluations between two analyses are one span, and one request: of those asked for earlier the
    answers are remembered, so that a round asks for the newest span's alone. Of first kernels that
    are right nothing was expected, and there is nothing to learn.
    """
    options = asker.round.options
    if not options.reflect:
        return []
    history = prefix(asker.round.history, analysed)
    points = [*[each for each in analyses(history) if each < analysed], analysed]
    spans = [s for s in pairwise(points) if any(map(_teaches, _outcomes(history, *s)))]
    requests = [_request(asker, history, *span) for span in spans[-options.lessons :]]
    answers = asker.llm.complete(requests) if requests else []
    found: dict[str, None] = {}
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Completion):
            lessons = read_lessons(answer.text)
            tell(asker, request, "lessons" if lessons else "no-lessons", usable=bool(lessons))
            found |= dict.fromkeys(lessons)
    return list(found)


def read_lessons(text: str) -> list[str]:
    """Return the lessons of an answer, at most a few; [] where there are none. Never raises."""
    found: list[str] = []
    for item in objects_in(text):
        listed = item.get("lessons")
        values = listed if isinstance(listed, list) else [item.get("lesson")]
        found += [said for said in (one_line(value, 1_000) for value in values) if said]
    return found[:_MOST_LESSONS]


def _outcomes(history: History, begin: int, end: int) -> list[Evaluation]:
    span = list(history)[begin:end]
    return [each for each in span if mark_of(each) is not None][-_MOST_OUTCOMES:]


def _teaches(evaluation: Evaluation) -> bool:
    return evaluation.measurement is None or not evaluation.candidate.idea.startswith(FIRST)


def _request(asker: Asker, history: History, begin: int, end: int) -> CompletionRequest:
    then = prefix(history, end)  # what was profiled later would make it another request
    facts = [_facts(each, then) for each in _outcomes(history, begin, end)]
    prompt = asker.round.prompt("reflector", outcomes=facts, count=_MOST_LESSONS)
    return CompletionRequest(
        messages=prompt.messages, role="reflection", purpose="lessons",
        max_tokens=asker.round.options.analysis_tokens,
    )  # fmt: skip


def _facts(evaluation: Evaluation, history: History) -> dict[str, object]:
    failed = evaluation.measurement is None
    found = expected(evaluation, history)
    told = [each.metric for each in found.compared] if found else []
    return {
        "idea": plain(evaluation.candidate.idea),
        "result": result(evaluation, history),
        "compared": found.lines if found else [],
        "missing": found.missing if found else "",
        "observed": observed(evaluation, history, told),
        "detail": shortened(evaluation.detail, _DETAIL).strip() if failed else "",
    }
