"""Checks of the rules themselves: ``python -m kopt_roofline.lint`` (0: nothing found, 1: something)."""

from __future__ import annotations

import contextlib
import re
import string
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from kopt.errors import ExpressionError
from kopt.model.expressions import evaluate
from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS
from kopt_roofline.facts import FACTS
from kopt_roofline.ranking import rank
from kopt_roofline.rules import Rule, Rulebook, rulebook
from kopt_roofline.scope import names_in
from kopt_roofline.synthetic import points

POINTS = 3000
METRICS = frozenset([*CALL_METRICS, *KERNEL_METRICS])


def faults(book: Rulebook, collected: Collection[str] = METRICS) -> list[str]:
    """Return everything that is wrong with a rulebook, as sentences; empty where nothing is.

    :param collected: the metrics that some profiler, or kopt itself, can give.
    """
    return [
        *_of_names(book, collected),
        *_of_values(book),
        *_of_texts(book),
        *_of_moves(book),
        *_of_points(book),
    ]


def _label(book: Rulebook, rule: Rule) -> str:
    same = [each for each in book.rules if each.name == rule.name]
    return rule.name if len(same) == 1 else f"{rule.name} ({same.index(rule) + 1})"


def _expressions(rule: Rule) -> tuple[str, ...]:
    return (*rule.when, *rule.unless, *rule.gain)


def _of_names(book: Rulebook, collected: Collection[str]) -> Iterator[str]:
    """Every expression can be evaluated, and each of its names is known and collected."""
    rows = [(_label(book, r), (*_expressions(r), *r.evidence)) for r in book.rules]
    rows += [(f"value {name}", texts) for name, texts in book.values.items()]
    for label, texts in rows:
        for text in texts:
            try:
                names = names_in(text)
                _evaluated(text, names)
            except (SyntaxError, ExpressionError) as error:
                yield f"{label}: {text!r} cannot be evaluated: {error}"
                continue
            for name in names:
                if name not in METRICS and name not in FACTS and name not in book.values:
                    yield f"{label}: {name} is no metric, fact or value"
                elif name in METRICS and name not in FACTS and name not in collected:
                    yield f"{label}: no profiler collects {name}"


def _named(*texts: str) -> set[str]:
    """Return the names of expressions; those that are none have been reported by _of_names."""
    found: set[str] = set()
    for text in texts:
        with contextlib.suppress(SyntaxError):
            found |= set(names_in(text))
    return found


def _evaluated(text: str, names: Iterable[str]) -> None:
    """Raise ExpressionError where an expression is not allowed; 0 and 1 bring no division by zero."""
    for value in (1.0, 1e-3):
        evaluate(text, dict.fromkeys(names, value))


def _of_values(book: Rulebook) -> Iterator[str]:
    """No value needs itself, each is used, and none hides a metric or a fact."""
    used = {name for rule in book.rules for name in _named(*_expressions(rule))}
    used |= {name for rule in book.rules for name in _quotes(rule)}
    used |= {name for texts in book.values.values() for name in _named(*texts)}
    for name in book.values:
        if name in METRICS or name in FACTS:
            yield f"value {name}: it hides a metric or fact of this name"
        if name not in used:
            yield f"value {name}: no rule uses it"
        if name in _needs(book, name):
            yield f"value {name}: it needs itself"
    for name in FACTS:
        if name not in used:
            yield f"fact {name}: no rule uses it"


def _needs(book: Rulebook, name: str) -> set[str]:
    """Return all names that a value needs, directly or by others."""
    found: set[str] = set()
    left = [name]
    while left:
        new = _named(*book.values.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _quotes(rule: Rule) -> list[str]:
    parts = string.Formatter().parse(rule.explanation)
    return [name for _, name, _, _ in parts if name]


def _of_texts(book: Rulebook) -> Iterator[str]:
    """Explanations have two sentences; what they quote, and some evidence, is known if they hold."""
    for rule in book.rules:
        label = _label(book, rule)
        if (count := sentences(rule.explanation)) != 2:
            yield f"{label}: its explanation has {count} sentences, not two"
        sure = _named(*rule.when)
        for name in _quotes(rule):
            if name not in sure and not _follows(book, name, sure):
                yield f"{label}: its explanation quotes {name}, which may be unknown"
        if not any(name in sure or sure & _needs_sure(book, sure, name) for name in rule.evidence):
            yield f"{label}: all of its evidence may be unknown"


def _needs_sure(book: Rulebook, sure: set[str], name: str) -> set[str]:
    """Return the values among ``sure`` that can be made of a metric."""
    return {value for value in sure if value in book.values and name in _needs(book, value)}


def _follows(book: Rulebook, name: str, sure: set[str]) -> bool:
    """Whether a name is known wherever ``sure`` are: made of them, or needed by each way to one."""
    if any(_named(text) <= sure for text in book.values.get(name, ())):
        return True
    for value in sure & set(book.values):
        if all(name in _closure(book, text) for text in book.values[value]):
            return True
    return False


def _closure(book: Rulebook, text: str) -> set[str]:
    names = _named(text)
    for value in names & set(book.values):
        if len(book.values[value]) == 1:
            names = names | _closure(book, book.values[value][0])
    return names


def sentences(text: str) -> int:
    """Return the number of sentences: full stops, question and exclamation marks before a space."""
    return len(re.findall(r"[.!?](?=\s|$)", text))


def _of_moves(book: Rulebook) -> Iterator[str]:
    """Each move is described in one sentence, is used, and has a kebab-case name."""
    used = {move for rule in book.rules for move in rule.moves}
    for rule in book.rules:
        for move in rule.moves:
            if move not in book.moves:
                yield f"{_label(book, rule)}: move {move} is not described"
        if not rule.moves and not rule.alone:
            yield f"{_label(book, rule)}: it suggests no move"
    for move, text in book.moves.items():
        if move not in used:
            yield f"move {move}: no rule suggests it"
        if sentences(text) != 1 or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", move):
            yield f"move {move}: it needs a kebab-case name and one sentence"


def _of_points(book: Rulebook) -> Iterator[str]:
    """Each made-up profile has a diagnosis, and each rule comes first for one of them."""
    first: Counter[int] = Counter()
    for number, point in enumerate(points(POINTS)):
        ranking = rank(book, point.merged, point.facts, point.device)
        if ranking.places:
            first[ranking.places[0]] += 1
        else:
            yield f"made-up profile {number}: it has no diagnosis"
    for place, rule in enumerate(book.rules):
        if not first[place]:
            yield f"{_label(book, rule)}: it comes first for none of {POINTS} made-up profiles"


def main() -> int:
    """Print what is wrong; return the exit code."""
    book = rulebook()
    found = faults(book)
    for fault in found:
        print(fault, file=sys.stderr)  # noqa: T201 - this is a command
    print(f"{len(book.rules)} rules, {POINTS} made-up profiles: {len(found)} faults")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
