"""Known-wrong results on real problems: what is rejected, what survives, what is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kopt.hooks import Hooks
from kopt.model.oracle import OracleFinding, OracleReport
from kopt.model.problem import InputSpec, Problem
from kopt.model.reference import Alone
from kopt.optimize import load_problem
from kopt.testing.problems import function_problem, row_sum, vector_add
from kopt_verify import Verify
from kopt_verify.tf32 import rounded_to_tf32

_MODULE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return []
"""
_RMS = """
import torch


def rms_norm(x, weight):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * weight
"""


def report_on(problem: Problem) -> OracleReport:
    hooks = Hooks.load(
        [("backend", "kopt-torch:torch", {}), ("verifier", "kopt-verify:verify", {})]
    )
    reference = hooks.kopt_open_reference(problem, "cpu", Alone())
    assert reference is not None
    report = hooks.kopt_test_oracle(reference)
    reference.close()
    assert not hooks.failures and report is not None
    assert report.verifier == "verify" and report.distributions == reference.distributions
    return report


def by_name(report: OracleReport) -> dict[str, OracleFinding]:
    return {finding.mutation: finding for finding in report.findings}


def module(folder: Path, result: str, init: str = "pass") -> Problem:
    path = folder / "module.py"
    path.write_text(_MODULE.format(result=result, init=init), encoding="utf-8")
    return load_problem(path)


def rms_norm(dtype: str) -> Problem:
    inputs = (
        InputSpec(name="x", shape=(32, 64), dtype=dtype),
        InputSpec(name="weight", shape=(64,), dtype=dtype),
    )
    return function_problem(_RMS, "rms_norm", inputs)


def test_identity_for_relu_passes_a_tolerance_and_is_rejected_on_signed_inputs(tmp_path):
    report = report_on(module(tmp_path, "torch.relu(x)"))
    identity = by_name(report)["input x returned"]
    assert identity.tolerance_accepts and not identity.native_rejects
    assert identity.rejected_by == ("signed",) and not identity.equivalent
    assert not report.survivors


def test_a_mean_that_hardly_varies_passes_a_loose_tolerance_only(tmp_path):
    report = report_on(module(tmp_path, "(1e-4 * x).mean(-1)"))
    found = by_name(report)
    for name in ("constant", "stale", "shifted by one", "lower precision"):
        assert found[name].tolerance_accepts and found[name].native_rejects, name
    assert not report.survivors


def test_a_reference_that_returns_a_constant_is_degenerate(tmp_path):
    report = report_on(module(tmp_path, "x * 0"))
    constant = {"zeros", "constant", "stale", "arguments ignored"}
    assert {finding.mutation for finding in report.survivors} == constant
    assert by_name(report)["negated"].equivalent
    (note,) = [note for note in report.notes if note.startswith("degenerate")]
    assert "whatever its inputs are (zeros, constant, stale, arguments ignored)" in note


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_nothing_survives_an_rms_norm_with_a_weight(dtype):
    report = report_on(rms_norm(dtype))
    assert not report.survivors, report.survivors
    found = by_name(report)
    assert not any(finding.equivalent for finding in report.findings)
    assert found["dropped weight"].rejected_by == ("native",)
    assert {"lower precision", "7/8 of the data", "one element off"} <= set(found)
    assert report.tolerance == (1e-2 if dtype in ("float16", "bfloat16") else 1e-4)


def test_a_reference_that_is_no_better_than_a_lower_precision_is_said_to_be_so():
    source = "def narrow(x):\n    return x.float().sigmoid().double() * 0.3\n"
    inputs = (InputSpec(name="x", shape=(32, 64), dtype="float64"),)
    report = report_on(function_problem(source, "narrow", inputs))
    assert {finding.mutation for finding in report.survivors} == {
        "lower precision", "one element slightly off",
    }  # fmt: skip
    assert any("cannot tell lower precision, one element" in n for n in report.notes)


def test_dropping_what_has_no_effect_is_no_fault_and_dropping_a_bias_is(tmp_path):
    init = "self.a, self.b = nn.Linear(48, 48), nn.Linear(48, 48)"
    found = by_name(report_on(module(tmp_path, "self.b(self.a(x))", init)))
    assert found["dropped a.bias"].rejected_by and found["other weights"].rejected_by
    init = "self.s = nn.Parameter(torch.ones(1))"
    gone = by_name(report_on(module(tmp_path, "x + (self.s > 99).float()", init)))
    assert gone["dropped s"].equivalent and not gone["dropped s"].survives


def test_tuples_with_integers_and_row_sums_are_judged_too(tmp_path):
    found = by_name(report_on(module(tmp_path, "torch.topk(x, 3)")))
    assert found["one element off"].rejected_by and found["negated"].rejected_by
    assert "mean of each row" in found
    assert not report_on(row_sum()).survivors


def test_what_a_problem_cannot_show_is_said():
    report = report_on(vector_add(64))
    missed = [note for note in report.notes if note.startswith("not tried")]
    assert missed and "transposed" in missed[0]
    assert "transposed" not in by_name(report)


def test_what_usual_inputs_let_through_has_the_reference_sharpened(tmp_path):
    """A product of many factors is zero soon: then the tail may be left out, but not near one."""
    hooks = Hooks.load(
        [("backend", "kopt-torch:torch", {}), ("verifier", "kopt-verify:verify", {})]
    )
    source = "def products(x):\n    return x.cumprod(-1)\n"
    problem = function_problem(source, "products", (InputSpec(name="x", shape=(16, 1000)),))
    reference = hooks.kopt_open_reference(problem, "cpu", Alone())
    assert reference is not None and reference.distributions == ("native", "signed")
    report = hooks.kopt_test_oracle(reference)
    assert report is not None and not report.survivors
    assert reference.distributions == report.distributions == ("native", "signed", "unit")
    assert by_name(report)["7/8 of the data"].rejected_by == ("unit",)
    reference.close()


def test_what_saturates_is_seen_on_positive_parameters(tmp_path):
    """A minimum over many channels is negative, and a GELU of it zero, unless all are positive."""
    init = "self.a = nn.Linear(48, 400)"
    report = report_on(module(tmp_path, "torch.relu(self.a(x).amin(-1) * 99)", init))
    found = by_name(report)
    assert not report.survivors and "positive" in report.distributions
    assert found["arguments ignored"].rejected_by == found["stale"].rejected_by == ("positive",)
    assert found["zeros"].tolerance_accepts


def test_an_argument_that_cancels_is_equivalent_by_float64(tmp_path):
    """In float32 a result without the bias differs by rounding: float64 says it is the same."""
    init = "self.a, self.n = nn.Conv1d(1, 8, 3), nn.InstanceNorm1d(8)"
    report = report_on(module(tmp_path, "self.n(self.a(x[:, None]))", init))
    found = by_name(report)["dropped a.bias"]
    assert found.equivalent and not found.survives
    assert by_name(report)["dropped a.weight"].rejected_by


def test_products_in_tf32_pass_a_tolerance_and_are_rejected(tmp_path):
    report = report_on(module(tmp_path, "self.a(x)", "self.a = nn.Linear(48, 48)"))
    found = by_name(report)["products in TF32"]
    assert found.rejected_by and found.native_rejects
    assert "products in TF32" not in by_name(report_on(module(tmp_path, "x + 1")))


def test_tf32_has_ten_bits_and_keeps_what_is_not_finite():
    values = torch.tensor([1.0, 1.0 + 2.0**-10, 1.0 + 2.0**-12, -1.0 - 2.0**-11, 3e38])
    wanted = torch.tensor([1.0, 1.0 + 2.0**-10, 1.0, -1.0 - 2.0**-10, 3e38])
    rounded = rounded_to_tf32(values)
    assert torch.equal(rounded[:4], wanted[:4])
    assert abs(float(rounded[4]) / 3e38 - 1) < 2.0**-11
    special = torch.tensor([float("inf"), float("-inf"), float("nan")])
    assert torch.equal(rounded_to_tf32(special).isnan(), special.isnan())
    assert torch.equal(rounded_to_tf32(special)[:2], special[:2])


@pytest.mark.parametrize(
    ("result", "native"), [("x / x.sum()", "torch.rand"), ("x.log().sum(-1)", "torch.rand")]
)
def test_nothing_survives_where_signs_may_not_change(tmp_path, result, native):
    report = report_on(module(tmp_path, result))
    assert not report.survivors


def test_a_large_problem_is_tried_on_fewer_rows():
    inputs = (InputSpec(name="x", shape=(4096, 1024)), InputSpec(name="weight", shape=(1024,)))
    report = report_on(function_problem(_RMS, "rms_norm", inputs))
    assert not report.survivors
    assert "tried on a sample, at smaller extents: 4096 -> 511" in report.notes


def test_where_fewer_rows_are_another_problem_all_are_tried(tmp_path):
    init = "self.a = nn.Parameter(torch.rand(1200, 1500))"
    path = tmp_path / "module.py"
    text = _MODULE.format(result="x + self.a", init=init).replace("32, 48", "1200, 1500")
    path.write_text(text, encoding="utf-8")
    report = report_on(load_problem(path))
    assert not report.survivors
    assert not any("sample" in note for note in report.notes)


def test_arguments_are_as_they_were_afterwards():
    hooks = Hooks.load([("backend", "kopt-torch:torch", {})])
    problem = function_problem(
        "def add_(x, y):\n    x += y\n    return x.sum(-1)\n", "add_",
        tuple(InputSpec(name=name, shape=(8, 8), dtype="float32") for name in "xy"), mutates=("x",),
    )  # fmt: skip
    reference = hooks.kopt_open_reference(problem, "cpu", Alone())
    assert reference is not None
    inputs = reference.inputs("default", 3)
    x, zero = inputs.tensors["x"].clone(), torch.zeros(8, 8)
    total, changed = reference.expected_with(inputs, {"y": zero}, {})
    assert torch.equal(changed, x) and torch.equal(total, x.sum(-1))
    assert not zero.any() and not inputs.changed()
    inputs.close()
    report = Verify(Verify.Options()).kopt_test_oracle(reference)
    assert not report.survivors
