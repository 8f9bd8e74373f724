"""Without a GPU: right results from the interpreter, refusals where it cannot be trusted."""

from __future__ import annotations

import textwrap

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.values import NamedValue, ScalarValue
from kopt.model.verification import Status

pytest.importorskip("triton")

ADD = """
# /// kopt
# entry = "add"
# [knobs]
# BLOCK = [256, 512]
# ///
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    tl.store(out + at, tl.load(x + at, mask=keep) + tl.load(y + at, mask=keep), mask=keep)

def add(x, y, *, BLOCK):
    assert x.is_cuda and x.device.type == "cuda"
    out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    with torch.cuda.device(x.device):
        add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK)
    return out
"""

SOFTMAX = """
@triton.jit
def shifted(x, top):
    return tl.exp(x - top)

@triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4)], key=["n"])
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < n, other=-float("inf"))
    e = shifted(v, tl.max(v, axis=0))
    tl.store(out + row * stride + at, e / e.sum(0), mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1])
    return out
"""

RMS_NORM = """
@triton.jit
def rms_kernel(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=at < n, other=0.0)
        tl.store(out + row * n + at, v * scale * w, mask=at < n)

class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.empty(features, device="cuda"))

    def forward(self, x):
        out = torch.empty_like(x)
        rms_kernel[(x.shape[0],)](x, self.weight, out, x.shape[1], self.eps, BLOCK=64)
        return out
"""


def run(executable, call, memory):
    bound = executable.bind(call, memory)
    bound.launch()
    claim = bound.collect()
    return claim, memory.read(call.outputs[0])


def test_a_kopt_module_gets_its_knobs_and_adds(build, memory):
    x, y = torch.randn(1000), torch.randn(1000)
    executable = build(ADD)
    claim, found = run(executable, memory.call(x, y, outputs=[torch.zeros(1000)]), memory)
    assert torch.equal(found, x + y)
    assert claim.structure == "tensor"
    assert [(item.shape, item.dtype, item.device) for item in claim.outputs] == [
        ((1000,), "float32", "cpu")
    ]
    assert executable.build.resources == {"interpreted": True}
    assert executable.build.backend == "triton"


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-6), (torch.float16, 1e-3)])
def test_an_autotuned_softmax_with_library_and_own_functions(build, memory, dtype, close):
    x = torch.randn(5, 77, dtype=dtype)
    call = memory.call(x, outputs=[torch.zeros_like(x)])
    _, found = run(build(SOFTMAX), call, memory)
    assert torch.allclose(found, x.float().softmax(1).to(dtype), atol=close, rtol=0)


def test_a_module_is_made_with_its_arguments_and_state(build, memory):
    x, weight = torch.randn(3, 150), torch.randn(150)
    call = memory.call(x, outputs=[torch.zeros_like(x)])
    call = call.model_copy(
        update={
            "init": (NamedValue(name="features", value=ScalarValue(value=150)),),
            "state": {"weight": memory.share(weight)},
        }
    )
    _, found = run(build(RMS_NORM), call, memory)
    expected = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * weight
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_wrong_kernel_gives_wrong_numbers(build, memory):
    x = torch.randn(300)
    wrong = ADD.replace("+ tl.load(y", "- tl.load(y")
    _, found = run(build(wrong), memory.call(x, x, outputs=[torch.ones(300)]), memory)
    assert torch.equal(found, torch.zeros(300))


def test_bfloat16_inputs_are_refused(build, memory):
    x = torch.randn(8, dtype=torch.bfloat16)
    with pytest.raises(CandidateError, match="without a GPU") as caught:
        build(ADD).bind(memory.call(x, x, outputs=[x]), memory)
    assert caught.value.status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    "changed",
    [
        ADD.replace("mask=keep) + tl", "mask=keep).to(tl.bfloat16) + tl"),
        ADD.replace("](x, y, out", "](x.bfloat16(), y, out"),
    ],
    ids=["in the kernel", "in the launcher"],
)
def test_bfloat16_inside_is_refused(build, memory, changed):
    x = torch.randn(8)
    with pytest.raises(CandidateError, match="bfloat16") as caught:
        run(build(changed), memory.call(x, x, outputs=[x]), memory)
    assert caught.value.status is Status.UNSUPPORTED


def test_it_is_never_timed(build, memory):
    x = torch.randn(8)
    executable = build(ADD)
    bound = executable.bind(memory.call(x, x, outputs=[x]), memory)
    assert executable.timeable is False
    with pytest.raises(CandidateError, match="never timed"):
        executable.device_ms([bound], 1)


def test_a_module_may_ask_for_the_gpu_at_import(build, memory):
    source = (
        "DEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
        "UNITS = triton.runtime.driver.active.utils.get_device_properties(0)"
        "['multiprocessor_count']\n"
        "assert UNITS == torch.cuda.get_device_properties(0).multi_processor_count\n"
        "assert torch.cuda.get_device_capability() == (9, 0)\n"
    )
    x = torch.randn(8)
    _, found = run(build(source + ADD), memory.call(x, x, outputs=[torch.zeros(8)]), memory)
    assert torch.equal(found, 2 * x)
    assert not torch.cuda.is_available()


def test_an_error_in_a_kernel_names_its_line(build, memory):
    source = ADD.replace("    keep = at < n\n", "    keep = at < missing\n")
    x = torch.randn(8)
    with pytest.raises(CandidateError) as caught:
        run(build(source), memory.call(x, x, outputs=[x]), memory)
    line = 1 + (textwrap.dedent(source).splitlines()).index("    keep = at < missing") + 4
    assert f"line {line}: `keep = at < missing`" in caught.value.detail
    assert "is not defined" in caught.value.detail
    assert caught.value.status is Status.LAUNCH_FAILED


def test_an_error_in_the_launcher_names_its_line(build, memory):
    x = torch.randn(8)
    with pytest.raises(CandidateError, match=r"line \d+: `out = torch.empty\(x.shapes"):
        run(
            build(ADD.replace("x.shape,", "x.shapes,")),
            memory.call(x, x, outputs=[x]),
            memory,
        )
