"""What backends find in a source that declares no knobs, and what of it a candidate cannot have."""

from __future__ import annotations

from typing import Any

import pytest

import kopt
from kopt.hooks import Hooks
from kopt.model.candidate import Edit


def candidate(source: str = "x = 1") -> kopt.Candidate:
    return kopt.Candidate(language="cpp", source=source, entry="f", strategy="user")


def hooks_of(role: str, *instances: object) -> Hooks:
    return Hooks.load([], [(role, instance) for instance in instances])


class Finder:
    """Finds what it is told to in any source."""

    def __init__(self, knobs: object) -> None:
        self.knobs = knobs

    @kopt.hookimpl
    def kopt_tunables(self, candidate: kopt.Candidate) -> object:
        return self.knobs


def found_knob(start: int = 4, end: int = 5, **more: Any) -> kopt.Knob:
    edits = (Edit(start=start, end=end, texts=("1", "2")),)
    return kopt.Knob(**({"default": 1, "choices": (1, 2), "edits": edits} | more))


def test_the_first_backend_that_knows_a_language_finds_its_tunables() -> None:
    hooks = hooks_of("backend", Finder(None), Finder({"X": found_knob()}), Finder({}))
    assert hooks.kopt_tunables(candidate("x = 1")) == {"X": found_knob()}
    assert hooks_of("backend", Finder({}), Finder(None)).kopt_tunables(candidate()) == {}


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"X": kopt.Knob(default=1, choices=(1, 2))}, "has no edits"),
        ({"X": found_knob(0, 99)}, "outside the source"),
        ({"X": found_knob(), "Y": found_knob()}, "lies over another"),
        ({"X": found_knob(default=2)}, "not as it stands"),
        ({"a-b": found_knob()}, "no name that a kernel could use"),
        ([1], "TypeError"),
        ({"X": 1}, "ValidationError"),
    ],
)
def test_tunables_that_a_candidate_cannot_have_are_the_backends_failure(
    knobs: object, words: str
) -> None:
    hooks = hooks_of("backend", Finder(knobs), Finder({"X": found_knob()}))
    assert hooks.kopt_tunables(candidate("x = 1")) == {"X": found_knob()}
    assert words in hooks.failures[0].error
