"""How much memory a large problem takes beside its own inputs and outputs; what is made in parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kopt.model.problem import InputSpec
from kopt_torch import domains, stress
from kopt_torch.drawing import Draw

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


@pytest.mark.parametrize("content", ["scale:100", "offset:1000", "alternating"])
@pytest.mark.parametrize("shape", [(7, 6), (5, 3, 4), (40,), (1, 9)])
def test_strained_values_are_the_same_in_parts(content, shape, problem, monkeypatch):
    asked = problem("def f(x):\n    return x", InputSpec(name="x", shape=shape))

    def strained():
        drawn = Draw(["x"], [torch.arange(1.0, 1.0 + torch.Size(shape).numel()).view(shape)], {})
        return stress.stressed(asked, drawn, content).values[0]

    whole = strained()
    monkeypatch.setattr(stress, "_AT_A_TIME", 8)
    assert torch.equal(strained(), whole)


@pytest.mark.parametrize("at_a_time", [1, 100, 1 << 24])
def test_probabilities_are_known_in_parts(at_a_time, monkeypatch):
    monkeypatch.setattr(domains, "_AT_A_TIME", at_a_time)
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(1))
    tensors = {
        "probabilities": logits.softmax(-1), "log-probabilities": logits.log_softmax(-1),
        "free": logits.sigmoid(),
    }  # fmt: skip
    looks = domains.look_at(tensors.items())
    assert {name: look.sums for name, look in looks.items()} == {name: name for name in tensors}
