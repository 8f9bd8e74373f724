"""On a GPU: results, device times, scratch memory, clusters, and failures under their own names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.model.verification import Status
from kopt.testing.tensors import OwnTensors
from kopt_torch.tensors import NAMES

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")
EXAMPLES = Path(__file__).parents[4] / "examples"
pytestmark = pytest.mark.gpu


def bound_to(executable, out, **tensors):
    every = {**tensors, "out": out}
    refs = {
        name: TensorRef(
            segment=number, offset=0, dtype=NAMES[item.dtype], shape=tuple(item.shape),
            strides=item.stride(),
        )
        for number, (name, item) in enumerate(every.items())
    }  # fmt: skip
    arguments = tuple(NamedValue(name=name, value=refs[name]) for name in tensors)
    call = CallSpec(arguments=arguments, outputs=(refs["out"],))
    return executable.bound_to(call, OwnTensors(*every.values()))


def result(executable, out, **tensors):
    bound = bound_to(executable, out, **tensors)
    bound.launch()
    bound.collect()
    assert executable.device_ms([bound], 20) > 0
    return out


def test_softmax_is_right_and_timed(build, here):
    x = torch.randn(512, 8192, device="cuda", dtype=torch.float16)
    executable = build(EXAMPLES / "cuda-softmax" / "softmax.cu", here, gpu=True)
    found = result(executable, torch.zeros_like(x), x=x)
    wanted = torch.softmax(x.float(), -1)
    assert torch.allclose(found.float(), wanted, rtol=2e-3, atol=1e-6)


def test_rms_norm_is_right_and_timed(build, here):
    x = torch.randn(512, 8192, device="cuda", dtype=torch.float16)
    weight = torch.randn(8192, device="cuda", dtype=torch.float16)
    executable = build(EXAMPLES / "cuda-rms-norm" / "rms_norm.cu", here, gpu=True)
    found = result(executable, torch.zeros_like(x), x=x, weight=weight)
    wide = x.float()
    wanted = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()
    assert torch.allclose(found.float(), wanted, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_a_cluster_shares_a_row_that_no_block_holds(build, here, blocks):
    if int(here.removeprefix("sm_")) < 90:
        pytest.skip("clusters begin with sm_90")
    columns = 100_000  # 400 kB: more than one block's shared memory
    x = torch.randn(64, columns, device="cuda")
    path = EXAMPLES / "cuda-cluster" / "cluster_softmax.cu"
    executable = build(path, here, gpu=True, knobs={"BLOCKS": blocks})
    found = result(executable, torch.zeros_like(x), x=x)
    assert torch.allclose(found, torch.softmax(x, -1), rtol=1e-4, atol=1e-9)
    (kernel,) = executable.build.resources["kernels"]
    assert tuple(kernel["cluster"]) == (blocks, 1, 1)


def test_scratch_is_zero_at_the_start_of_each_call(build, here):
    source = """\
// /// kopt
// [scratch.total]
// shape = [1]
// dtype = "float32"
// zeroed = true
// [[launch]]
// kernel = "add_up"
// grid = ["cdiv(x.numel, 256)"]
// block = 256
// arguments = ["x", "total", "x.numel"]
// [[launch]]
// kernel = "spread"
// grid = ["cdiv(x.numel, 256)"]
// block = 256
// arguments = ["total", "out", "x.numel"]
// ///
extern "C" __global__ void add_up(const float *x, float *total, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at < n) atomicAdd(total, x[at]);
}
extern "C" __global__ void spread(const float *total, float *out, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at < n) out[at] = *total;
}
"""
    x = torch.ones(1000, device="cuda")
    bound = bound_to(build(source, here, gpu=True), out := torch.zeros_like(x), x=x)
    for _ in range(3):
        bound.launch()
    bound.collect()
    assert torch.equal(out, torch.full_like(x, 1000))


def test_it_launches_on_the_current_stream(build, here):
    x = torch.ones(1 << 20, device="cuda")
    out = torch.zeros_like(x)
    bound = bound_to(build(SCALE, here, gpu=True), out, x=x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000)
        x.fill_(3)
        bound.launch()
    stream.synchronize()
    assert torch.equal(out, torch.full_like(x, 6))


def test_figures_are_those_of_the_driver(build, here):
    executable = build(SCALE, here, gpu=True)
    bound_to(executable, torch.zeros(8, device="cuda"), x=torch.ones(8, device="cuda"))
    loaded = executable._functions["scale"]
    (kernel,) = executable.build.resources["kernels"]
    assert kernel["registers"] == loaded.num_regs
    assert kernel["static_shared_bytes"] == loaded.shared_size_bytes


def test_what_the_driver_refuses_is_a_failed_launch(build, here):
    source = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    x = torch.ones(8, device="cuda")
    bound = bound_to(build(source, here, gpu=True), torch.zeros_like(x), x=x)
    with pytest.raises(CandidateError, match="kernel scale: CUDA_ERROR") as caught:
        bound.launch()
    assert caught.value.status is Status.LAUNCH_FAILED


TWO_KERNELS = """\
// /// kopt
// [scratch.parts]
// shape = ["x.shape[0]"]
// dtype = "float32"
// zeroed = true
// [[launch]]
// kernel = "mirror"
// grid = ["cdiv(x.numel, 256)"]
// block = 256
// shared = 2048
// arguments = ["x", "parts", "x.numel"]
// [[launch]]
// kernel = "halve"
// grid = ["cdiv(x.numel, 128)"]
// block = [64, 2]
// arguments = ["parts", "out", "x.numel"]
// ///
extern "C" __global__ void mirror(const float *x, float *parts, int n) {
    __shared__ float whole[256];
    extern __shared__ float more[];
    int at = blockIdx.x * 256 + threadIdx.x;
    whole[threadIdx.x] = at < n ? x[at] : 0.0f;
    more[255 - threadIdx.x] = whole[threadIdx.x];
    __syncthreads();
    if (at < n) parts[at] = whole[255 - threadIdx.x] + more[threadIdx.x];
}
extern "C" __global__ void halve(const float *parts, float *out, int n) {
    int at = blockIdx.x * 128 + threadIdx.y * 64 + threadIdx.x;
    if (at < n) out[at] = parts[at] * 0.5f;
}
"""


def test_a_timeline_has_each_kernel_of_a_plan_as_it_was_launched(build, here):
    x = torch.randn(1024, device="cuda")
    executable = build(TWO_KERNELS, here, gpu=True)
    bound = bound_to(executable, out := torch.zeros_like(x), x=x)
    timeline = executable.timeline(bound, 4)
    bound.collect()
    assert torch.equal(out, x.view(4, 256).flip(1).flatten())
    assert timeline.calls == 4
    assert [run.name for run in timeline.kernels] == ["memset", "mirror", "halve"] * 4
    assert all(run.duration_us > 0 for run in timeline.kernels)
    _, mirror, halve = timeline.kernels[-3:]
    assert (mirror.grid, mirror.block) == ((4, 1, 1), (256, 1, 1))
    assert (halve.grid, halve.block) == ((8, 1, 1), (64, 2, 1))
    assert (mirror.shared_bytes, halve.shared_bytes) == (1024 + 2048, 0)
    for run, used in zip((mirror, halve), executable.build.resources["kernels"], strict=True):
        assert used["registers"] <= run.registers <= max(16, used["registers"] + 8)


def test_a_timeline_of_what_the_driver_refuses_is_a_candidates_error(build, here):
    source = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    x = torch.ones(8, device="cuda")
    executable = build(source, here, gpu=True)
    with pytest.raises(CandidateError, match="kernel scale: CUDA_ERROR"):
        executable.timeline(bound_to(executable, torch.zeros_like(x), x=x), 2)
