"""Who is asked for the first kernels: a language model only where nobody else has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kopt
from kopt.hooks import Hooks
from kopt.testing import records

ANY: Any = None


class Proposer:
    """Yields a candidate for each of its sources."""

    def __init__(self, *sources: str, needs_llm: bool = False) -> None:
        self.sources, self.needs_llm = sources, needs_llm

    @kopt.hookimpl
    def kopt_propose(self) -> Iterator[kopt.Candidate]:
        for source in self.sources:
            yield candidate(source)


def candidate(source: str) -> kopt.Candidate:
    return kopt.Candidate(language="cpp", source=source, entry="f")


@pytest.mark.parametrize(
    ("alone", "past", "asked"),
    [(("a",), 0, ["a"]), ((), 0, ["written"]), (("a",), 1, ["a", "written"])],
)
def test_a_language_model_writes_the_first_kernel_where_nobody_else_has_one(
    alone: tuple[str, ...], past: int, asked: list[str]
) -> None:
    """Three requests were paid for though a starter matched, and its kernel waited for them."""
    history = records.history([records.measured(candidate("old"), 1.0)] * past)
    both = Proposer(*alone), Proposer("written", needs_llm=True)
    hooks = Hooks.load([("strategy", each, {}) for each in both])
    found = hooks.kopt_propose(ANY, ANY, ANY, None, (), history)
    assert [proposed.candidate.source for proposed in found] == asked
