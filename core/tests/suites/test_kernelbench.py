"""A made-up tree in KernelBench's form: what is found in it, and how it is derived."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kopt.errors import ConfigError, ProblemError
from kopt.suites.kernelbench import kernelbench_suite

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return [32]"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in ("10_Scale_it.py", "2_Scale.py", "1_Scale_.py", "notes.py", "README.md"):
        (folder / name).write_text(FILE)
    (folder / "3_Broken.py").write_text("class Model(:\n")
    return tmp_path / "checkout"


def test_files_are_in_the_order_of_their_numbers(root: Path) -> None:
    suite = kernelbench_suite(root, 1)
    assert (suite.name, suite.dtype) == ("kernelbench-level1", "float32")
    assert [each.id for each in suite.problems] == ["1", "2", "3", "10"]
    assert [each.name for each in suite.problems][-1] == "10_Scale_it"
    assert kernelbench_suite(root / "KernelBench", 1).problems[0].name == "1_Scale_"


def test_float32_is_the_file_as_it_is(root: Path) -> None:
    each = kernelbench_suite(root, 1).problems[0]
    problem = each.load()
    assert (problem.name, problem.reference.source, each.derived) == ("1_Scale_", FILE, "")


def test_bfloat16_is_derived_and_says_so(root: Path) -> None:
    each = kernelbench_suite(root, 1, "bfloat16").problems[0]
    problem = each.load()
    assert each.derived == "inputs and parameters cast to bfloat16"
    assert problem.reference.source.startswith(FILE + "\n")
    added = problem.reference.source.removeprefix(FILE)
    assert "torch.bfloat16" in added
    ast.parse(problem.reference.source)
    assert problem.id != kernelbench_suite(root, 1).problems[0].load().id


def test_a_file_that_cannot_be_read_is_a_matter_of_its_turn(root: Path) -> None:
    broken = kernelbench_suite(root, 1).problems[2]
    with pytest.raises(ProblemError, match=r"3_Broken\.py:1: syntax error"):
        broken.load()


def test_what_is_no_checkout_says_so(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no KernelBench/level2 in it"):
        kernelbench_suite(root, 2)
    (tmp_path / "level1").mkdir()
    with pytest.raises(ConfigError, match="no file NUMBER_NAME"):
        kernelbench_suite(tmp_path, 1)
    with pytest.raises(ConfigError, match="'float16' is not one of"):
        kernelbench_suite(root, 1, "float16")
    (root / "KernelBench" / "level1" / "02_Again.py").write_text(FILE)
    with pytest.raises(ConfigError, match="more than one file with number 2"):
        kernelbench_suite(root, 1)
