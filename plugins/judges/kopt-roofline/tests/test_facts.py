from __future__ import annotations

import pytest

from kopt.model.device import Device
from kopt.model.problem import OperatorCall, Problem, Signature, Tolerance
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_roofline.facts import FACTS, complete_call, derived_metrics, facts_of


def _product(dtype: str, name: str = "aten.mm.default") -> Signature:
    signature = problems.row_sum_signature()
    call = OperatorCall(name=name, flops=1_000_000, dtype=dtype)
    first = signature.first.model_copy(update={"trace": (call,)})
    return Signature(workloads={"default": first})


def _problem(precision: str) -> Problem:
    tolerance = Tolerance(precision=precision)  # type: ignore[arg-type]
    return problems.row_sum().model_copy(update={"tolerance": tolerance})


@pytest.mark.parametrize(
    ("dtype", "precision", "rate"),
    [
        ("float16", "reference", 750), ("bfloat16", "strict", 800), ("float32", "tf32", 410),
        ("float32", "reference", 750 / 3), ("float32", "strict", 750 / 3), ("float64", "tf32", None),
    ],
)  # fmt: skip
def test_tensor_cores_go_at_the_rate_that_the_problem_allows(
    gpu: Device, dtype: str, precision: str, rate: float | None
) -> None:
    facts = facts_of(_problem(precision), _product(dtype), gpu)
    assert facts.get("peak_tensor_tflops") == rate
    assert facts["tensor_cores"] == (rate is not None)
    assert set(facts) <= set(FACTS)


@pytest.mark.parametrize(
    ("architecture", "dtype", "has"),
    [("sm_70", "float16", 1), ("sm_75", "float32", 0), ("sm_80", "float32", 1), ("sm_61", "float16", 0),
     ("sm_90a", "bfloat16", 1), ("sm_80", "float8_e4m3fn", 0), ("sm_100", "float8_e4m3fn", 1)],
)  # fmt: skip
def test_old_devices_have_no_tensor_cores_for_it(
    gpu: Device, architecture: str, dtype: str, has: int
) -> None:
    device = gpu.model_copy(update={"architecture": architecture})
    assert facts_of(problems.row_sum(), _product(dtype), device)["tensor_cores"] == has


def test_a_float32_convolution_may_use_tf32(gpu: Device) -> None:
    signature = _product("float32", "aten.convolution.default")
    assert facts_of(_problem("reference"), signature, gpu)["peak_tensor_tflops"] == 410
    assert facts_of(_problem("strict"), signature, gpu)["peak_tensor_tflops"] == 750 / 3


def test_what_was_never_measured_is_absent() -> None:
    facts = facts_of(problems.row_sum(), problems.row_sum_signature(), records.gpu())
    assert facts == {"multiprocessors": 132.0, "peak_gb_s": 3000.0}
    facts = facts_of(problems.row_sum(), _product(""), records.cpu())
    assert facts == {"cpus": 2.0, "peak_gb_s": 10.0}


def test_the_bound_follows_from_the_work_and_the_measured_rates(gpu: Device) -> None:
    signature = _product("float16")
    call = derived_metrics(problems.row_sum(), signature, a_parent(), gpu)
    assert call["memory_bound_us"] == pytest.approx(signature.first.compulsory_bytes / 3.11e6)
    assert call["compute_bound_us"] == pytest.approx(1e6 / 750e6)
    assert call["bound_us"] == max(call["memory_bound_us"], call["compute_bound_us"])
    assert call["latency_us"] == pytest.approx(500)
    complete_call(call)
    assert call["of_bound_percent"] == pytest.approx(100 * call["bound_us"] / 500)
    assert call["achieved_gb_s"] == pytest.approx(signature.first.compulsory_bytes / 500e3)


def test_without_rates_there_is_no_bound() -> None:
    device = records.gpu().model_copy(update={"copy_bandwidth_gb_s": None})
    signature = problems.row_sum_signature()
    call = derived_metrics(problems.row_sum(), signature, a_parent(), device)
    assert "bound_us" not in call
    no_latency: dict[str, float] = {"latency_us": 0.0, "bound_us": 1.0}
    complete_call(no_latency)
    assert "of_bound_percent" not in no_latency
