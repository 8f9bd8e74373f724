"""Candidates of one round: asked of every strategy for every parent, doubles removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.completion import LanguageModel
from kopt.model.device import Target
from kopt.model.diagnosis import Diagnosis
from kopt.model.evaluation import Evaluation
from kopt.model.fingerprint import fingerprint
from kopt.model.history import History
from kopt.model.problem import Problem, Signature


def propose(
    hooks: Hooks,
    problem: Problem,
    signature: Signature,
    target: Target,
    parents: Sequence[tuple[Evaluation | None, Sequence[Diagnosis]]],
    history: History,
    llm: LanguageModel | None = None,
) -> list[Candidate]:
    """Return new candidates of all parents, taking turns so that none is starved.

    One that declares no knobs gets those that its backend finds. Dropped: what was evaluated
    already, by id or by source after normalising, and doubles.
    """
    seen = {fingerprint(evaluation.candidate) for evaluation in history}
    lists = [
        [
            tunable(hooks, _signed(proposed.candidate, proposed.plugin))
            for proposed in hooks.kopt_propose(
                problem, signature, _toward(target, parent), parent, list(diagnoses), history, llm
            )
        ]
        for parent, diagnoses in parents
    ]
    return list(_fresh(lists, seen, history))


def _toward(target: Target, parent: Evaluation | None) -> Target:
    """Return the target of a parent's children: what is built beside is its language where that is.

    A strategy that changes a kernel goes on in the language that the kernel is written in.
    """
    language = parent.candidate.language if parent else target.language
    if language not in target.beside:
        return target
    others = tuple(each for each in target.beside if each != language)
    return target.model_copy(update={"language": language, "beside": (target.language, *others)})


def _signed(candidate: Candidate, plugin: str) -> Candidate:
    if candidate.strategy != "user":
        return candidate
    return candidate.model_copy(update={"strategy": plugin})


def tunable(hooks: Hooks, candidate: Candidate) -> Candidate:
    """Return a candidate with its knobs: those that it declares, else what a backend finds."""
    if candidate.knobs:
        return candidate
    found = hooks.kopt_tunables(candidate)
    return candidate.with_knobs(found) if found else candidate


def _fresh(
    lists: Sequence[Sequence[Candidate]], seen: set[str], history: History
) -> Iterator[Candidate]:
    for turn in zip_longest(*lists):
        for candidate in turn:
            if candidate is None or candidate.id in history:
                continue
            mark = fingerprint(candidate)
            if mark not in seen:
                seen.add(mark)
                yield candidate
