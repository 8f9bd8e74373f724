from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from kopt.model.device import Device, Peaks
from kopt.model.diagnosis import Diagnosis, KernelProfile, Profile, metrics_of
from kopt.model.problem import OperatorCall, Signature
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_roofline import Roofline

Values = Mapping[str, float]
Judge = Callable[..., Diagnosis]

PEAKS = Peaks(
    copy_gb_s=3030, read_gb_s=3110, write_gb_s=3000, fp32_tflops=51, tf32_tflops=410,
    bf16_tflops=800, fp16_tflops=750, launch_us=2.2,
)  # fmt: skip


def half_product() -> Signature:
    """Return the signature of something with a product in half precision."""
    signature = problems.row_sum_signature()
    product = OperatorCall(name="aten.mm.default", flops=1_000_000, dtype="float16")
    first = signature.first.model_copy(update={"trace": (product,)})
    return Signature(workloads={"default": first})


@pytest.fixture
def gpu() -> Device:
    return records.gpu().model_copy(update={"peaks": PEAKS})


@pytest.fixture
def judge(gpu: Device) -> Judge:
    """Judge kernels, each a mapping of metrics as ncu would give them, and metrics of the call."""

    def judged(
        *kernels: Values,
        call: Values | None = None,
        device: Device = gpu,
        names: Sequence[str] = ("kernel_0", "kernel_1", "kernel_2"),
        products: bool = False,
    ) -> Diagnosis:
        evaluation = a_parent()
        signature = half_product() if products else problems.row_sum_signature()
        whole = {"latency_us": 300.0, "bound_us": 45.0} | dict(call or {})
        seen = tuple(
            KernelProfile(name=name, metrics=metrics_of(values))
            for name, values in zip(names, kernels, strict=False)
        )
        profiles = [
            Profile(profiler="kopt", candidate=evaluation.id, metrics=metrics_of(whole)),
            Profile(profiler="ncu", candidate=evaluation.id, kernels=seen),
        ]
        diagnosis = Roofline().kopt_judge(
            problems.row_sum(), signature, evaluation, profiles, device
        )
        assert diagnosis is not None
        return diagnosis

    return judged
