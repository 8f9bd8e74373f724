"""Knobs that a backend found in a source are tuned like declared ones."""

from __future__ import annotations

import kopt
from kopt.model.candidate import Edit
from kopt.model.device import Target
from kopt.testing import records
from kopt_autotune import Autotune

TARGET = Target(language="triton", device=records.gpu())

SOURCE = "launch(BLOCK=64)\n"


def found() -> kopt.Candidate:
    knob = kopt.Knob(
        default=64,
        choices=(32, 64, 128),
        edits=(Edit(start=13, end=15, texts=("32", "64", "128")),),
    )
    candidate = kopt.Candidate(language="triton", source=SOURCE, entry="f")
    return candidate.with_knobs({"BLOCK": knob})


def test_each_setting_is_the_source_with_its_value_in_it():
    parent = records.measured(found(), 2.0)
    proposed = Autotune().kopt_propose(parent, records.history([parent]), TARGET)
    assert [each.text for each in proposed] == ["launch(BLOCK=32)\n", "launch(BLOCK=128)\n"]
    assert [each.idea for each in proposed] == ["BLOCK=32", "BLOCK=128"]
    assert {each.structure for each in proposed} == {parent.candidate.structure}
    assert all(each.parents == (parent.id,) for each in proposed)


def test_all_settings_are_known_once_they_were_evaluated():
    past = [
        records.measured(found().with_values("test", BLOCK=size), 1.0) for size in (32, 64, 128)
    ]
    assert Autotune().kopt_propose(past[1], records.history(past), TARGET) == []
