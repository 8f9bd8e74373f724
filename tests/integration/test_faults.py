"""Faults among the trials of one run: each costs itself, the others keep verdict and timing."""

from __future__ import annotations

import pytest

import kopt
from kopt import single
from kopt.config import Settings
from kopt.model.kernel_file import load_kernel, parse_kernel
from kopt.model.verification import Status
from kopt.optimize import load_problem
from kopt.selftest.cases import FIXTURES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

FAULTS = {
    "cpu": {
        "segfault.cpp": {Status.ILLEGAL_ACCESS},
        "hang.cpp": {Status.HANG},
        "exits-with-zero.cpp": {Status.CRASHED},
        "out-of-memory.cpp": {Status.OOM},
    },
    "cuda": {
        "wild-pointer.py.txt": {Status.ILLEGAL_ACCESS},
        "device-hang.py.txt": {Status.HANG},
        "huge shared memory": {Status.COMPILE_ERROR},
        "out-of-memory.py.txt": {Status.OOM},
    },
}
"""Trials 3, 5, 7 and 9 of ten."""
HONEST = {"cpu": "honest.cpp", "cuda": "honest.py.txt"}
HUGE = """
# /// kopt
# language = "triton"
# entry = "norm"
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, out, B: tl.constexpr):
    rows, cols = tl.arange(0, B)[:, None], tl.arange(0, 2 * B)[None, :]
    left = tl.load(x + rows * 2 * B + cols)
    right = tl.load(x + tl.arange(0, 2 * B)[:, None] * B + tl.arange(0, B)[None, :])
    tl.store(out + rows * B + tl.arange(0, B)[None, :], tl.dot(left, right))


def norm(x, weight, bias):
    memory = torch.zeros(256 * 512, device=x.device)
    _norm[(1,)](memory, torch.empty(256 * 256, device=x.device), 256, num_warps=8)
    return x
"""
"""Two operands of 512 KB each in shared memory: no GPU has that much."""


def kernel(name: str) -> kopt.Candidate:
    """Load a fixture, or parse ``HUGE``."""
    if name == "huge shared memory":
        return parse_kernel(HUGE, "triton")
    return load_kernel(FIXTURES / "kernels" / name)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_four_faults_of_ten_trials_cost_nobody_else_anything(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    problem = load_problem(FIXTURES / "problems" / "norm")
    honest = load_kernel(FIXTURES / "kernels" / HONEST[device])
    faults = dict(zip((3, 5, 7, 9), FAULTS[device].items(), strict=True))
    settings = Settings(
        device=device, run_timeout=10.0, options={"backend.torch": {"compile": False}}
    )
    trials = {
        number: kernel(faults[number][0]) if number in faults
        # ten different candidates: equal ones are evaluated once
        else honest.model_copy(update={"source": f"{honest.source}\n{marker(device)} {number}\n"})
        for number in range(1, 11)
    }  # fmt: skip
    with single.evaluator_for(problem, [honest], device, settings) as evaluator:
        evaluator.open()
        found = {each.id: each for each in evaluator.evaluate(list(trials.values()))}
    verdicts = {number: found[trial.id] for number, trial in trials.items()}
    for number, evaluation in verdicts.items():
        if number in faults:
            assert evaluation.status in faults[number][1], (number, evaluation.detail)
            assert evaluation.measurement is None
            continue
        assert evaluation.status is Status.CORRECT, (number, evaluation.detail)
        assert evaluation.measurement is not None
        assert evaluation.measurement.latency_ms > 0


def marker(device: str) -> str:
    """Return what begins a comment in the language of a device's kernels."""
    return "//" if device == "cpu" else "#"
