"""How much memory opening a large problem takes, beside its own inputs and outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kopt.model.problem import InputSpec

ROWS, COLS = 1024, 16384
TENSOR = 4 * ROWS * COLS
OPENING = f"""
import json, re, sys
from pathlib import Path

from kopt.model.problem import Problem
from kopt_torch import slices, tensors
from kopt_torch.reference import TorchReference

slices.CHUNK_BYTES, tensors.PIECE = {TENSOR // 4}, 1 << 20  # as 2 GiB are to inputs of 8

def most():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

small, large = (Problem.model_validate(each) for each in json.load(sys.stdin))
TorchReference(small, "cpu").close()
before = most()
TorchReference(large, "cpu").close()
print(most() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no peak of memory is known here"
)
def test_opening_a_large_problem_takes_little_beside_it(problem):
    """Whole results in float64, several at a time, came to four times inputs and outputs."""
    body = "def f(x):\n    return torch.relu(x) + 0.5"
    problems = [problem(body, InputSpec(name="x", shape=(rows, COLS))) for rows in (4, ROWS)]
    done = subprocess.run(
        [sys.executable, "-c", OPENING], input=json.dumps([each.to_json() for each in problems]),
        capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 3 * (2 * TENSOR)
