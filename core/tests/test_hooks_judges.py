"""Judges are asked one after the other, and hear what those before them found."""

from __future__ import annotations

from typing import Any

import kopt
from kopt.hooks import Hooks

# Stands in for arguments that no judge below looks at.
ANY: Any = None


class Judge:
    """Says how many were before it, or raises."""

    def __init__(self, name: str, error: BaseException | None = None) -> None:
        self.name, self.error = name, error

    @kopt.hookimpl
    def kopt_judge(self, diagnoses: tuple[kopt.Diagnosis, ...]) -> kopt.Diagnosis:
        if self.error:
            raise self.error
        before = ", ".join(each.judge for each in diagnoses)
        return kopt.Diagnosis(judge=self.name, bottleneck=f"after {before or 'nobody'}")


def test_what_a_caller_gives_is_heard_and_stays_as_it_is() -> None:
    given = [kopt.Diagnosis(judge="x", bottleneck="one")]
    hooks = Hooks.load([], instances=[("judge", Judge(name)) for name in "ab"])
    found = hooks.kopt_judge(ANY, ANY, ANY, (), ANY, ANY, given)
    assert [each.bottleneck for each in found] == ["after x", "after x, a"]
    assert len(given) == 1


def test_judges_hear_those_before_them() -> None:
    judges = [Judge("a"), Judge("broken", error=ValueError("no")), Judge("b"), Judge("c")]
    hooks = Hooks.load([], instances=[("judge", judge) for judge in judges])
    for _ in range(2):
        found = hooks.kopt_judge(ANY, ANY, ANY, (), ANY, ANY)
        assert [each.bottleneck for each in found] == ["after nobody", "after a", "after a, b"]
    assert [failure.hook for failure in hooks.failures] == ["kopt_judge"] * 2
