"""The origin stage: who may leave the work to others, who may not, and how much is a note."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.origin import KernelUse, OperatorUse, Origin
from kopt.model.verification import Status
from kopt.testing.problems import vector_add
from kopt.testing.trials import BACKENDS, Trials
from kopt.testing.verifier import HONEST, cpp_add, torch_add
from kopt_verify.beyond import Beyond
from kopt_verify.origin import check_origin, elements_of, judged
from kopt_verify.stages import StageFailedError


@contextmanager
def bound(trials, source, language):
    trial = trials.of(parse_kernel(source, language), depth="winner")
    inputs = trials.reference.inputs(trial.problem.workloads[0].name, 5, "native")
    try:
        with Beyond(trial, trial.problem.workloads[0].name) as beyond:
            yield trial, inputs, beyond
        trial.release(inputs)
    finally:
        inputs.close()


def test_an_own_kernel_passes(trials):
    with bound(trials, HONEST, "cpp") as (trial, inputs, beyond):
        result = check_origin(trial, inputs, beyond)
        assert elements_of(inputs.call) == 3 * 4096
    assert (result.stage, result.outcome) == ("origin", "pass")
    assert result.evidence.startswith("no compute of the framework")


def test_a_library_that_loads_others_is_delegated(trials):
    source = cpp_add('out[0] = dlsym(nullptr, "cblas_saxpy") ? 1 : 0;').replace(
        "#include <cstdint>", "#include <cstdint>\n#include <dlfcn.h>"
    )
    with (
        bound(trials, source, "cpp") as (trial, inputs, beyond),
        pytest.raises(StageFailedError) as caught,
    ):
        check_origin(trial, inputs, beyond)
    assert (caught.value.stage, caught.value.status) == ("origin", Status.DELEGATED)
    assert "its library asks for dlsym" in caught.value.evidence
    assert "Do the work in the kernel" in caught.value.evidence


def test_framework_code_is_what_torch_declares(trials):
    with bound(trials, torch_add("x + y"), "torch") as (trial, inputs, beyond):
        result = check_origin(trial, inputs, beyond)
        seen, _ = judged(trial.origin(inputs), elements_of(inputs.call))
    assert result.outcome == "pass"
    assert "declared as language torch" in result.evidence
    assert seen == ["the framework computed aten::add on 100.0% of the call's elements"]


TRITON = """import torch
import triton
import triton.language as tl

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    tl.store(out + at, tl.load(x + at, mask=keep) + tl.load(y + at, mask=keep), mask=keep)

def kernel_function(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""


def test_a_triton_candidate_may_move_data_but_not_have_it_computed(tmp_path):
    pytest.importorskip("triton")
    backends = (*BACKENDS, ("backend", "kopt-triton:triton", {}))
    with Trials(vector_add(4096), tmp_path, backends=backends) as made:
        with bound(made, TRITON, "triton") as (trial, inputs, beyond):
            result = check_origin(trial, inputs, beyond)
        lazy = TRITON.replace("return out", "return getattr(torch, 'a' + 'dd')(x, y)")
        with (
            bound(made, lazy, "triton") as (trial, inputs, beyond),
            pytest.raises(StageFailedError, match=r"computed aten::add on 100\.0%") as caught,
        ):
            check_origin(trial, inputs, beyond)
    assert (result.outcome, result.evidence[:24]) == ("pass", "the framework moved data")
    assert caught.value.status is Status.DELEGATED


def use(name, elements, moves_only=False):
    return OperatorUse(name=name, elements=elements, moves_only=moves_only)


@pytest.mark.parametrize(
    ("operators", "delegated"),
    [
        ([use("aten::mm", 51)], True),
        ([use("aten::mm", 50)], False),
        ([use("aten::sum", 30), use("aten::max", 30)], True),
        ([use("aten::copy_", 2000, moves_only=True)], False),
        ([use("Torch-Compiled Region", 0)], True),
        ([], False),
    ],
)
def test_operators_up_to_a_twentieth_of_the_elements_are_a_note(operators, delegated):
    found, notes = judged(Origin(operators=operators), 1000)
    assert bool(found) is delegated
    assert bool(notes) is (bool(operators) and not delegated)


@pytest.mark.parametrize(
    "name",
    [
        "void cublasLt::splitKreduce_kernel<32, 16>", "cutlass_80_tensorop_s1688gemm_128x256",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>",
        "void cudnn::winograd_nonfused::winogradForwardData4x4", "triton_poi_fused_add_0",
        "triton_red_fused_sum_1", "triton_per_fused_softmax_2", "ampere_sgemm_32x128_nn",
    ],
)  # fmt: skip
def test_vendor_kernels_by_their_share_of_device_time(name):
    own = KernelUse(name="softmax_kernel", device_ms=0.9)
    found, _ = judged(Origin(kernels=(own, KernelUse(name=name, device_ms=0.1))), 1000)
    assert "took 10.0% of the device time" in found[0]
    found, notes = judged(Origin(kernels=(own, KernelUse(name=name, device_ms=0.01))), 1000)
    assert not found
    assert "took 1.1%" in notes[0]


@pytest.mark.parametrize(
    "name",
    [
        "add_kernel", "matmul_kernel", "triton_softmax", "my_gemm", "Memcpy DtoD (Device -> Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
        "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(...)>",
    ],
)  # fmt: skip
def test_own_kernels_and_copies_are_not_vendor_compute(name):
    assert judged(Origin(kernels=(KernelUse(name=name, device_ms=1.0),)), 1000) == ([], [])
