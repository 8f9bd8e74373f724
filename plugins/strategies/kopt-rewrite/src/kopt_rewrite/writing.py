"""First kernels, improvements and repairs: which code is asked for in a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.logs import get_logger
from kopt.model.completion import Completion, CompletionRequest
from kopt.model.fingerprint import fingerprint
from kopt_rewrite.asking import Order, candidates_of, first_candidates_of, prefetch, tell
from kopt_rewrite.comparing import watched
from kopt_rewrite.ideas import Idea, read_ideas
from kopt_rewrite.knowledge import bottlenecks_of
from kopt_rewrite.lineage import (
    FIRST,
    attempts_before,
    children,
    mark_of,
    marked,
    own,
    plain,
    prefix,
    to_repair,
)
from kopt_rewrite.outcomes import (
    MEANINGS,
    evidence,
    expected,
    observed,
    other_settings,
    result,
    shortened,
    tried_lines,
)
from kopt_rewrite.reflecting import lessons_at
from kopt_rewrite.round import fence_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.diagnosis import Diagnosis
    from kopt.model.evaluation import Evaluation
    from kopt_rewrite.round import Asker

_log = get_logger(__name__)
_DETAIL = 3_000


def first_kernels(asker: Asker) -> list[Candidate]:
    """Return the first kernels that are written, and repairs of those that failed.

    All attempts are asked for at once, and evaluated as they come: where one is right, the others
    are given up.
    """
    history = asker.round.history
    orders = list(_repairs(asker, first=True))
    done = {plain(each.candidate.idea) for each in own(history)}
    knowledge = asker.round.knowledge()
    for attempt in range(1, asker.round.options.attempts + 1):
        name = f"{FIRST}, attempt {attempt}"
        if name in done:
            continue
        idea = marked(name, len(history), len(history))
        orders.append(Order(
            asker.round.prompt("first", attempt=min(attempt, 2), knowledge=knowledge),
            asker.round.wanted(), "code", idea, sample=attempt - 1,
            temperature=asker.round.options.temperature,
        ))  # fmt: skip
    return _new(first_candidates_of(asker, orders), asker)


def improvements(
    asker: Asker, parent: Evaluation, diagnoses: Sequence[Diagnosis]
) -> list[Candidate]:
    """Return repairs of what failed, and the code of a parent's next ideas."""
    repairs = list(_repairs(asker, first=False))
    prefetch(asker, repairs)  # while the analyst thinks
    written = _next_ideas(asker, parent, diagnoses)
    return [*_new(candidates_of(asker, repairs), asker), *written]


def _next_ideas(
    asker: Asker, parent: Evaluation, diagnoses: Sequence[Diagnosis]
) -> list[Candidate]:
    """Return the code of a parent's next ideas.

    Those left over from its last analysis come first; where none of them becomes a kernel the model
    is asked anew, with all that is known by now.
    """
    made = children(parent, asker.round.history)
    last = max((mark.analysed for e in made if (mark := mark_of(e))), default=None)
    for analysed in dict.fromkeys([last, len(asker.round.history)]):
        if analysed is not None:
            written = _written(asker, parent, diagnoses, analysed)
            if written:
                return written
    return []


def _written(
    asker: Asker, parent: Evaluation, diagnoses: Sequence[Diagnosis], analysed: int
) -> list[Candidate]:
    """Return the code of the next ideas of an analysis; one that comes to nothing is passed over."""
    done = {plain(e.candidate.idea) for e in children(parent, asker.round.history)}
    ideas = [i for i in _ideas_at(asker, parent, diagnoses, analysed) if plain(i.text) not in done]
    orders = [_improvement(asker, parent, diagnoses, idea, analysed) for idea in ideas]
    width, at = asker.round.options.width, 0
    found: list[Candidate] = []
    while at < len(orders) and len(found) < width:
        batch = orders[at : at + width - len(found)]
        at += len(batch)
        found += _new(candidates_of(asker, batch), asker)
    prefetch(asker, orders[at : at + asker.round.options.ahead])
    return found


def _new(candidates: list[Candidate], asker: Asker) -> list[Candidate]:
    """Return the candidates that were not evaluated yet, in whatever setting of found knobs."""
    known = {_mark(e.candidate) for e in asker.round.history}
    return [candidate for candidate in candidates if _mark(candidate) not in known]


def _mark(candidate: Candidate) -> str:
    found = any(knob.edits for knob in candidate.knobs.values())
    bare = candidate.model_copy(update={"knobs": {}, "values": {}}) if found else candidate
    return fingerprint(bare)


def _ideas_at(
    asker: Asker, parent: Evaluation, diagnoses: Sequence[Diagnosis], analysed: int
) -> list[Idea]:
    """Return what the analyst says of a parent with a history of ``analysed`` evaluations."""
    history = prefix(asker.round.history, analysed)
    count = asker.round.options.ideas
    prompt = asker.round.prompt(
        "analyst", count=count, diagnoses=diagnoses, tried=tried_lines(history, parent),
        others=other_settings(parent, history), kernel=asker.round.kernel(parent) | {"idea": _origin(parent, asker)},
        lessons=lessons_at(asker, analysed),
        knowledge=asker.round.knowledge(bottlenecks_of(diagnoses)),
    )  # fmt: skip
    request = CompletionRequest(
        messages=prompt.messages, role="analysis", purpose="ideas",
        max_tokens=asker.round.options.analysis_tokens,
    )  # fmt: skip
    [answer] = asker.llm.complete([request])
    if not isinstance(answer, Completion):
        _log.info("no_ideas", kind=answer.kind, detail=answer.detail)
        return []
    ideas = read_ideas(answer.text, count)
    tell(asker, request, "ideas" if ideas else "no-ideas", usable=bool(ideas))
    return ideas


def _origin(parent: Evaluation, asker: Asker) -> str:
    """Return what led to a kernel: its idea with what was expected, and what was seen."""
    if mark_of(parent) is None or parent.candidate.idea.startswith(FIRST):
        return ""
    history = asker.round.history
    lines = [f"{plain(parent.candidate.idea)}: {result(parent, history)}"]
    found = expected(parent, history)
    told = [each.metric for each in found.compared] if found else []
    missing = [found.missing] if found and found.missing else []
    compared = found.lines if found else []
    return "\n".join([*lines, *compared, *missing, *observed(parent, history, told)])


def _improvement(
    asker: Asker, parent: Evaluation, diagnoses: Sequence[Diagnosis], idea: Idea, analysed: int
) -> Order:
    kernel = asker.round.kernel(parent)
    prompt = asker.round.prompt(
        "coder", idea=idea.whole, kernel=kernel, diagnoses=diagnoses,
        knowledge=asker.round.knowledge(bottlenecks_of(diagnoses)),
    )  # fmt: skip
    return Order(
        prompt, asker.round.wanted(parent.candidate, str(kernel["source"])), "code",
        marked(idea.text, analysed, len(asker.round.history)), (parent.id,),
        watched=watched(idea.text) if asker.round.options.profile_ideas else (),
    )  # fmt: skip


def _repairs(asker: Asker, *, first: bool) -> Iterator[Order]:
    """Yield a repair for each failure since the last proposals, as far as options allow."""
    history = asker.round.history
    for failed in to_repair(history, asker.round.options.repairs, first=first):
        source = failed.candidate.text
        mark = mark_of(failed)
        chain = attempts_before(failed, history)
        failure = {
            "status": str(failed.status), "meaning": MEANINGS.get(failed.status, ""),
            "detail": shortened(failed.detail, _DETAIL).strip(), "source": source,
            "fence": fence_of(failed.candidate), "evidence": list(evidence(failed)),
            "idea": "" if failed.candidate.idea.startswith(FIRST) else plain(failed.candidate.idea),
            "earlier": [
                {"status": str(e.status), "detail": shortened(e.detail, 300).strip()}
                for e in reversed(chain)
            ],
        }  # fmt: skip
        yield Order(
            asker.round.prompt("repairer", failure=failure),
            asker.round.wanted(failed.candidate, source), "repair",
            marked(failed.candidate.idea, mark.analysed if mark else 0, len(history)),
            (failed.id,), watched=failed.candidate.watched,
        )  # fmt: skip
