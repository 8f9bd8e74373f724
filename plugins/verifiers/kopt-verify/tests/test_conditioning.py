"""Outputs of few elements: an honest sum that cancels is right, a careless one is not."""

from __future__ import annotations

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt.model.verification import Status
from kopt.testing.problems import function_problem
from kopt_verify import Verify
from kopt_verify import conditioning as module

TOTAL = function_problem(
    "def total(x):\n    return x.sum()\n", "total", (InputSpec(name="x", shape=(4096,)),)
)
SUM = """\
// /// kopt
// entry = "total"
// arguments = ["x", "out", "x.numel"]
// ///
#include <cstdint>
#include <cstring>
static float rounded(float value) {{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits &= {mask};
    std::memcpy(&value, &bits, 4);
    return value;
}}
extern "C" void total(const float* x, float* out, int64_t n) {{
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += rounded(x[i]);
    *out = sum;
}}
"""
EXACT, TF32 = "0xffffffffu", "0xffffe000u"


def judged(open_trials, mask: str):
    trial = open_trials(TOTAL).of(parse_kernel(SUM.format(mask=mask), "cpp"))
    return Verify(Verify.Options(seeds=40)).kopt_verify(trial)


def test_a_plain_sum_of_values_that_cancel_is_accepted(open_trials, monkeypatch):
    assert judged(open_trials, EXACT).status is Status.CORRECT
    monkeypatch.setattr(module, "_FEW", 0)  # without the second look it would not be
    assert judged(open_trials, EXACT).status is Status.WRONG


@pytest.mark.parametrize("mask", [TF32, "0xffff0000u"])
def test_a_sum_of_values_that_lost_bits_is_not(open_trials, mask):
    assert judged(open_trials, mask).status is Status.WRONG
