"""Outputs of few elements: an honest sum that cancels is right, a careless one is not."""

from __future__ import annotations

from contextlib import closing

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt.model.verification import Status
from kopt.testing.problems import function_problem
from kopt_verify import Verify
from kopt_verify import conditioning as module
from kopt_verify.accuracy import compare
from kopt_verify.tf32 import Tf32Mode, rounded_to_tf32

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


CONVOLUTION = function_problem(
    "import torch.nn.functional as F\n\ndef convolve(x, weight):\n    return F.conv2d(x, weight)\n",
    "convolve",
    (InputSpec(name="x", shape=(2, 32, 16, 16)), InputSpec(name="weight", shape=(32, 32, 3, 3))),
)


@pytest.mark.parametrize("tf32", [None, False, True])
def test_where_a_reference_convolves_in_tf32_it_may_be_so_at_other_shapes_too(open_trials, tf32):
    """A library may choose an exact algorithm there, which says nothing about the kernel."""
    reference = open_trials(CONVOLUTION).reference
    (name,) = reference.signature.workloads
    seen = reference.signature.workloads[name].model_copy(update={"tf32": tf32})
    reference.signature = reference.signature.model_copy(update={"workloads": {name: seen}})
    with closing(reference.inputs(name, 3)) as inputs:
        with Tf32Mode(convolutions=True):
            coarse = reference.expected_with(inputs, {}, {})
        rough = [
            reference.expected_with(inputs, {n: t.bfloat16().float() for n, t in inputs.tensors.items()}, {})
        ]  # fmt: skip
        yardsticks = list(module.lenient_yardsticks(reference, inputs))

        def passed(results):
            return all(each.passed for each in compare(["out0"], results, yardsticks, None))

        assert passed(reference.expected(inputs))
        assert passed(coarse) is bool(tf32)
        assert not passed(rough[0])
        assert not passed([rounded_to_tf32(rounded_to_tf32(coarse[0]) * 1.001)])


@pytest.mark.parametrize("piece", [1 << 26, 1000, 7])
def test_arguments_rounded_otherwise_are_off_by_no_more_than_that(open_trials, monkeypatch, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    reference = open_trials(TOTAL).reference
    with closing(reference.inputs("default", 3)) as inputs:
        arguments, state = module._rounded_otherwise(reference, inputs, 5)
        x = inputs.tensors["x"].double()
        off = (arguments["x"] / x - 1.0).abs() / 2.0**-24
        assert not state and arguments["x"].shape == x.shape
        assert float(off.max()) <= 1.0 and float(off.mean()) > 0.4
        assert len(off.unique()) > 1000, "each element by a part of its own"
        other, _ = module._rounded_otherwise(reference, inputs, 6)
        assert not other["x"].equal(arguments["x"])
