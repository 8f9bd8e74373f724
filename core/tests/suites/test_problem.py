"""Numbers of problems, as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.errors import ConfigError
from kopt.suites.problem import parse_ids, spelled


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("7", (7,)),
        ("1-3,7", (1, 2, 3, 7)),
        (" 9 , 2 - 4,3", (2, 3, 4, 9)),
        ("100-100", (100,)),
    ],
)
def test_ids(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_ids(text) == numbers
    assert parse_ids(spelled([str(number) for number in numbers])) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,,2", "3-1", "1-", "-4", "1-2-3", "1.5", "1-99999999"])
def test_what_names_no_problems_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_ids(text)


def test_numbers_are_spelled_as_ranges() -> None:
    assert spelled(["10", "1", "2", "3", "7"]) == "1-3,7,10"
    assert spelled([]) == ""


def test_problems_are_chosen_by_number_in_the_suites_order(made: Any) -> None:
    suite = made.suite(5)
    assert [each.id for each in suite.chosen((4, 2))] == ["2", "4"]
    assert suite.chosen(None) == suite.problems
    with pytest.raises(ConfigError, match=r"no problem 6, 70; it has 1-5"):
        suite.chosen((1, 6, 70))


def test_a_suite_is_held_to_another_arithmetic(made: Any) -> None:
    suite = made.suite(2)
    assert suite.in_precision(None) is suite
    (first, second) = suite.in_precision("strict").problems
    assert first.load().tolerance.precision == second.load().tolerance.precision == "strict"
    assert [each.load().name for each in (first, second)] == [
        each.load().name for each in suite.problems
    ]
    assert suite.problems[0].load().tolerance.precision == "reference"
    with pytest.raises(ConfigError, match=r"--precision 'exact': must be one of reference, strict"):
        suite.in_precision("exact")
