from __future__ import annotations

import pytest

from kopt.errors import ProblemError
from kopt.formats.kernelbench import KernelBenchFormat
from kopt.model.problem import Workload

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""


def load(tmp_path, text, name="36_RMSNorm_.py"):
    path = tmp_path / name
    path.write_text(text)
    return KernelBenchFormat().kopt_load_problem(path)


def test_a_kernelbench_file_is_taken_as_it_is(tmp_path):
    problem = load(tmp_path, FILE)
    assert (problem.name, problem.format) == ("36_RMSNorm_", "kernelbench")
    assert (problem.inputs, problem.workloads) == ((), (Workload(),))
    reference = problem.reference
    assert (reference.kind, reference.entry) == ("kernelbench", "Model")
    assert (reference.source, reference.filename) == (FILE, "36_RMSNorm_.py")


def test_nothing_is_executed(tmp_path):
    assert load(tmp_path, "raise SystemExit(7)\n" + FILE) is not None


@pytest.mark.parametrize(
    "text",
    [
        "def get_inputs(): ...\ndef get_init_inputs(): ...\n",
        FILE.replace("class Model(", "class ModelNew("),
        "not Python at all",
        "'''\nclass Model\n'''\n",
        "# /// kopt-problem\n# name = 'a'\n# ///\n" + FILE,
    ],
)
def test_other_files_are_left_to_other_formats(tmp_path, text):
    assert load(tmp_path, text) is None
    assert KernelBenchFormat().kopt_load_problem(tmp_path) is None


def test_other_suffixes_are_left_to_other_formats(tmp_path):
    assert load(tmp_path, FILE, "model.txt") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("get_inputs", "inputs"), r"class Model \(line 5\) without get_inputs; .*def get_inputs"),
        (FILE.replace("get_init_inputs", "init"), "without get_init_inputs"),
        (FILE.replace("return []", "return ["), r"36_RMSNorm_.py:\d+: syntax error"),
        ("from .layers import Norm\n" + FILE, ":1: imports the neighbouring module '.layers'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path, text, message):
    with pytest.raises(ProblemError, match=message):
        load(tmp_path, text)
