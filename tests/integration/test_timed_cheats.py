"""Kernels that pass every check and cheat once they are timed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kopt
from kopt import single
from kopt.config import Settings
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem
from kopt.model.verification import Status
from kopt.testing.problems import vector_add

LENGTH = 4 << 20
_CHECKED_CALLS = 120
"""More than a winner's verification makes."""
_SOURCE = """\
// /// kopt
// entry = "vector_add"
// arguments = ["x", "y", "out", "x.numel"]
// ///
#include <cstdint>
extern "C" void vector_add(const float* x, const float* y, float* out, int64_t n) {{
    static int calls = 0;
    const int64_t most = ++calls > {honest} ? n * {part} / 4 : n;
    for (int64_t i = 0; i < most; ++i) out[i] = x[i] + y[i];
}}
"""


def kernel(part: int, honest: int = _CHECKED_CALLS) -> kopt.Candidate:
    """Return a kernel that computes ``part`` quarters once it has been called ``honest`` times."""
    return parse_kernel(_SOURCE.format(honest=honest, part=part), "cpp")


@pytest.fixture(scope="module")
def bench() -> Iterator[single.Bench]:
    """The sum of two vectors of 16 MB, with its baselines timed."""
    problem: Problem = vector_add(LENGTH)
    settings = Settings(device="cpu", options={"backend.torch": {"compile": False}})
    with single.open_bench(problem, [kernel(4)], settings) as opened:
        yield opened


@pytest.mark.parametrize(
    ("part", "status", "said"),
    [
        (0, Status.TIMING_NOT_CREDIBLE, "the work was not done"),
        (3, Status.WRONG, "timed outputs"),
        (4, Status.CORRECT, ""),
    ],
)
def test_what_is_timed_is_what_was_checked(
    bench: single.Bench, part: int, status: Status, said: str
) -> None:
    evaluation = bench.measure(kernel(part))
    assert evaluation.status is status, evaluation.detail
    assert said in evaluation.detail


def test_the_verdict_names_the_look_at_timed_outputs(bench: single.Bench) -> None:
    evaluation = bench.measure(kernel(4))
    stages = [stage for verdict in evaluation.verifications for stage in verdict.stages]
    timed = [stage for stage in stages if stage.stage == "timed outputs"]
    assert len(timed) == 2  # other content, then one element that changed
    assert all(stage.outcome == "pass" and "as timed" in stage.evidence for stage in timed)
