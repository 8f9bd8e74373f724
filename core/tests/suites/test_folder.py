"""A folder of problems as a suite: what is one, in which order, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.errors import ConfigError, ProblemError
from kopt.suites.folder import folder_suite

TOML = """
name = "{name}"

[reference]
file = "reference.py"
function = "f"

[inputs.x]
shape = ["n"]
dtype = "float32"

[[workloads]]
name = "small"
n = 8

[[workloads]]
name = "large"
n = 64
"""
ONE_FILE = '''# /// kopt-problem
# [reference]
# function = "g"
# [inputs.x]
# shape = [4]
# dtype = "float32"
# ///
"""Twice."""


def g(x):
    return 2 * x
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "my problems"
    for name in ("b-scale", "a-shift", "_kept-apart", ".hidden"):
        (place / name).mkdir(parents=True)
        (place / name / "problem.toml").write_text(TOML.format(name=name))
        (place / name / "reference.py").write_text("def f(x):\n    return x + 1\n")
    (place / "c_twice.py").write_text(ONE_FILE)
    (place / "helper.py").write_text("VALUE = 1\n")
    (place / "notes").mkdir()
    (place / "README.md").write_text("# /// kopt-problem\n")
    return place


def test_problems_are_numbered_in_the_order_of_their_names(folder: Path) -> None:
    suite = folder_suite(folder)
    assert (suite.name, suite.dtype) == ("my problems", "mixed")
    assert [(p.id, p.name) for p in suite.problems] == [
        ("1", "a-shift"), ("2", "b-scale"), ("3", "c_twice"),
    ]  # fmt: skip
    first = suite.problems[0].load()
    assert [w.name for w in first.workloads] == ["small", "large"]
    assert first.reference.source.startswith("def f(x)")


def test_each_workload_can_be_a_problem_of_its_own(folder: Path) -> None:
    suite = folder_suite(folder, each_workload=True)
    assert [p.name for p in suite.problems] == [
        "a-shift-small", "a-shift-large", "b-scale-small", "b-scale-large", "c_twice",
    ]  # fmt: skip
    loaded = [p.load() for p in suite.problems]
    assert len({p.id for p in loaded}) == 5
    assert [len(p.workloads) for p in loaded] == [1] * 5


def test_one_that_cannot_be_read_does_not_cost_the_others(folder: Path) -> None:
    (folder / "b-scale" / "problem.toml").write_text("name = ")
    suite = folder_suite(folder, each_workload=True)
    assert [p.name for p in suite.problems] == [
        "a-shift-small", "a-shift-large", "b-scale", "c_twice",
    ]  # fmt: skip
    with pytest.raises(ProblemError, match=r"problem\.toml"):
        suite.problems[2].load()
    assert suite.problems[3].load().name == "c_twice"


def test_a_problem_is_no_folder_of_them(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is one problem: `kopt optimize"):
        folder_suite(folder / "a-shift")


def test_a_folder_without_problems(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has no problem"):
        folder_suite(folder / "notes")
