"""What rules know besides metrics: the device's own facts and the problem's work."""

from __future__ import annotations

from kopt.model.device import Device, Peaks
from kopt.model.evaluation import Evaluation
from kopt.model.problem import Problem, Signature
from kopt.model.work import MatrixFlops, bound_ms, work_of

FACTS: dict[str, str] = {
    "multiprocessors": "streaming multiprocessors of the device",
    "cpus": "CPUs that the process may use",
    "peak_gb_s": "the most that memory was measured to give",
    "peak_launch_us": "an empty kernel launch, measured",
    "peak_fp32_tflops": "a large float32 matrix product without tensor cores, measured",
    "peak_tensor_tflops": "a large product on tensor cores in a precision that the problem allows",
    "tensor_cores": "1 where the device has tensor cores for the problem's products, else 0",
}
"""Names that rules may use besides kopt.model.metrics, where known; units are in the names."""

_HALF = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_FIRST_TENSOR, _FIRST_TF32, _FIRST_FP8 = 70, 80, 89
"""Compute capabilities, as in ``sm_80`` (CUDA C++ Programming Guide, Compute Capabilities)."""


def facts_of(problem: Problem, signature: Signature, device: Device) -> dict[str, float]:
    """Return what is known of FACTS; what was never measured is absent."""
    peaks = device.peaks or Peaks()
    rates = [rate for rate in (peaks.bandwidth_gb_s, device.copy_bandwidth_gb_s) if rate]
    product = _product(signature)
    dtype = product.dtype if product else ""
    cuda = device.kind == "cuda"
    known: dict[str, float | None] = {
        "multiprocessors": device.units if cuda else None,
        "cpus": None if cuda else device.units,
        "peak_gb_s": max(rates, default=None),
        "peak_launch_us": peaks.launch_us,
        "peak_fp32_tflops": peaks.fp32_tflops,
        "peak_tensor_tflops": _tensor_tflops(peaks, product, problem.tolerance.precision),
        "tensor_cores": cuda and _has_tensor_cores(device, dtype) if dtype else None,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def derived_metrics(
    problem: Problem, signature: Signature, evaluation: Evaluation, device: Device
) -> dict[str, float]:
    """Return call metrics that follow from records alone, for profiles that lack them.

    The bound is kopt.model.work's; of a device without measured peaks, by the copy bandwidth.
    """
    work = work_of(signature.first)
    peaks = device.peaks or Peaks(copy_gb_s=device.copy_bandwidth_gb_s)
    bound = bound_ms(work, peaks, problem.tolerance.precision)
    first = evaluation.measurement.workloads[0] if evaluation.measurement else None
    milliseconds = {
        "latency_us": first.latency_ms if first else None,
        "call_us": first.call_ms if first else None,
        "bound_us": bound.total_ms,
        "memory_bound_us": bound.memory_ms,
        "compute_bound_us": bound.compute_ms,
    }
    found = {name: 1e3 * each for name, each in milliseconds.items() if each is not None}
    found["compulsory_bytes"] = float(work.compulsory_bytes)
    found["matrix_flops"] = float(work.matrix_flops)
    return found


def complete_call(call: dict[str, float]) -> None:
    """Add the call metrics that follow from others and are not there yet."""
    latency = call.get("latency_us", 0.0)
    if latency <= 0:
        return
    made = {
        "achieved_gb_s": ("compulsory_bytes", 1e-3),
        "achieved_tflops": ("matrix_flops", 1e-6),
        "of_bound_percent": ("bound_us", 100.0),
    }
    for name, (source, factor) in made.items():
        if source in call:
            call.setdefault(name, factor * call[source] / latency)


def _product(signature: Signature) -> MatrixFlops | None:
    """Return the kind of product with most operations; None: there is none."""
    return max(work_of(signature.first).matrix, key=lambda each: each.flops, default=None)


def _has_tensor_cores(device: Device, dtype: str) -> bool:
    digits = "".join(each for each in device.architecture if each.isdigit())
    first = {"float16": _FIRST_TENSOR, "bfloat16": _FIRST_TF32, "float32": _FIRST_TF32}
    needed = first.get(dtype, _FIRST_FP8 if dtype in _HALF else None)
    return needed is not None and bool(digits) and int(digits) >= needed


def _tensor_tflops(peaks: Peaks, product: MatrixFlops | None, precision: str) -> float | None:
    """Return the rate that tensor cores allow, as kopt.model.work takes it.

    Three products in TF32 or float16 are as accurate as one in float32; for a convolution PyTorch
    allows TF32.
    """
    if product is None:
        return None
    if product.dtype == "float32" and peaks.tf32_tflops:
        if precision == "tf32" or (precision == "reference" and product.kind == "convolution"):
            return peaks.tf32_tflops
        return max(peaks.tf32_tflops, peaks.fp16_tflops or 0.0) / 3
    rates = {"float16": peaks.fp16_tflops, "bfloat16": peaks.bf16_tflops}
    return rates.get(product.dtype, peaks.fp8_tflops) if product.dtype in _HALF else None
