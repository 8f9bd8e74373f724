from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from kopt_roofline import lint
from kopt_roofline.ranking import rank
from kopt_roofline.rules import Rule, Rulebook, rulebook
from kopt_roofline.synthetic import KERNEL, points

BOOK = rulebook()


def _changed(name: str, **fields: object) -> Rulebook:
    """The rules with one changed, which is the first of its name."""
    at = next(at for at, rule in enumerate(BOOK.rules) if rule.name == name)
    rule = Rule.model_validate({**BOOK.rules[at].model_dump(), **fields})
    return BOOK._replace(rules=(*BOOK.rules[:at], rule, *BOOK.rules[at + 1 :]))


def _text_faults(book: Rulebook) -> str:
    """Everything but what takes the made-up profiles."""
    parts = (lint._of_names(book, lint.METRICS), lint._of_values(book), lint._of_texts(book))
    return "\n".join(fault for part in (*parts, lint._of_moves(book)) for fault in part)


def test_the_shipped_rules_have_no_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kopt_roofline.lint"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(BOOK.rules)} rules" in done.stdout


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("divergence", {"when": ["thread_count < 3"]}, "thread_count is no metric"),
        ("divergence", {"when": ["threads_per_instruction <"]}, "cannot be evaluated"),
        ("divergence", {"unless": ["dram_busy_percent.real > 3"]}, "cannot be evaluated"),
        ("divergence", {"gain": "__import__('os')"}, "cannot be evaluated"),
        ("divergence", {"explanation": "One sentence, {ipc}."}, "has 1 sentences, not two"),
        ("divergence", {"explanation": "Quotes {ipc}. Yes."}, "quotes ipc, which may be unknown"),
        ("divergence", {"evidence": ["ipc"]}, "all of its evidence may be unknown"),
        ("divergence", {"moves": ["pray"]}, "move pray is not described"),
        ("divergence", {"moves": []}, "suggests no move"),
    ],
)
def test_it_finds_what_is_wrong_with_a_rule(
    name: str, fields: dict[str, object], words: str
) -> None:
    assert words not in _text_faults(BOOK)
    assert words in _text_faults(_changed(name, **fields))


def test_it_finds_a_metric_that_no_profiler_collects() -> None:
    found = list(lint._of_names(BOOK, lint.METRICS - {"pipe_special_percent"}))
    assert any("no profiler collects pipe_special_percent" in fault for fault in found)


def test_it_finds_values_that_need_themselves_and_moves_that_nothing_suggests() -> None:
    book = BOOK._replace(values={**BOOK.values, "a": ("b + 1",), "b": ("a",)})
    assert "value a: it needs itself" in _text_faults(book)
    book = BOOK._replace(moves={**BOOK.moves, "idle-move": "Two. Sentences."})
    assert "move idle-move: no rule suggests it" in _text_faults(book)
    assert "move idle-move: it needs a kebab-case name and one sentence" in _text_faults(book)


def test_it_finds_a_rule_that_can_never_come_first() -> None:
    book = _changed("divergence", when=["threads_per_instruction < 0"])
    found = list(lint._of_points(book))
    assert found == [f"divergence: it comes first for none of {lint.POINTS} made-up profiles"]


def test_it_finds_profiles_without_a_diagnosis() -> None:
    book = BOOK._replace(rules=tuple(rule for rule in BOOK.rules if not rule.fallback))
    assert any("has no diagnosis" in fault for fault in lint._of_points(book))


def test_with_all_counters_hardly_a_profile_is_unexplained() -> None:
    """Of those that no rule but a fallback explains, most are latency-bound by exclusion."""
    first: Counter[str] = Counter()
    for point in points(3000, seed=7):
        kernels = point.merged.kernels
        if point.device == "cuda" and kernels and len(kernels[0].metrics) == len(KERNEL):
            ranking = rank(BOOK, point.merged, point.facts, point.device)
            first[ranking.findings[0].bottleneck] += 1
    assert sum(first.values()) > 800
    assert first["unexplained"] < 0.05 * sum(first.values()), first
