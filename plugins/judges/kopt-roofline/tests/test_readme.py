from __future__ import annotations

from pathlib import Path

from kopt_roofline.lint import POINTS
from kopt_roofline.rules import rulebook
from kopt_roofline.table import table

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_rules_is_in_step() -> None:
    """Otherwise: replace it by what ``python -m kopt_roofline.table`` prints."""
    assert README.endswith(f"\n\n{table(rulebook())}\n")


def test_it_says_how_many_profiles_the_lint_makes() -> None:
    assert f"each of {POINTS:,} has a diagnosis" in README
