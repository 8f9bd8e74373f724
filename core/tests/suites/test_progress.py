"""What a suite says of a problem when it is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.cli.suite_progress import said
from kopt.suites.records import Chosen

KEPT = Chosen(what="baseline", name="eager", language="torch")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"verdict": "failed", "chosen": None, "reason": "one\ntwo"}, "failed: one"),
        ({"verdict": "baseline", "chosen": KEPT, "trials": {"wrong": 2}},
         "nothing faster than eager, which is kept"),
        ({"verdict": "baseline", "chosen": KEPT, "trials": {}, "reason": "nothing to gain"},
         "nothing was tried, and eager is kept (nothing to gain)"),
    ],
)  # fmt: skip
def test_an_outcome_in_words(made: Any, changed: dict[str, Any], words: str) -> None:
    assert said(made.row(1).model_copy(update=changed)) == words


def test_a_win_in_words(made: Any) -> None:
    kernel = Chosen(what="kernel", name="one pass", language="triton")
    won = made.row(1, best=2.0, eager=2.0).model_copy(update={"chosen": kernel})
    assert said(won).startswith("2.00x over ")
