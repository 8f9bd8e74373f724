"""On a GPU: results, resources of what ran, and each failure under its own name."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.model.verification import Status
from kopt.testing.tensors import OwnTensors
from kopt_torch.executable import PythonCall
from kopt_torch.tensors import NAMES

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

SCALE = """
@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    scale_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=8)
    return out
"""


def bound_to(executable, *tensors):
    """Bind to arguments and one output, the last."""
    refs = [
        TensorRef(
            segment=number, offset=0, dtype=NAMES[item.dtype],
            shape=tuple(item.shape), strides=item.stride(),
        )
        for number, item in enumerate(tensors)
    ]  # fmt: skip
    arguments = tuple(NamedValue(name=f"a{n}", value=ref) for n, ref in enumerate(refs[:-1]))
    call = CallSpec(arguments=arguments, outputs=(refs[-1],))
    return PythonCall(executable, call, OwnTensors(*tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_kernel_runs_and_says_what_it_used(build, dtype):
    x = torch.randn(1 << 16, device="cuda", dtype=dtype)
    out = torch.zeros_like(x)
    executable = build(SCALE, kind="cuda")
    assert executable.timeable is True
    assert executable.build.binary_id == ""
    bound = bound_to(executable, x, out)
    bound.launch()
    bound.collect()
    assert torch.equal(out, 2 * x)
    (kernel,) = executable.build.resources["kernels"]
    major, minor = torch.cuda.get_device_capability()
    assert kernel["name"] == "scale_kernel"
    assert kernel["architecture"] == f"sm_{major}{minor}"
    assert 8 <= kernel["registers"] <= 64
    assert (kernel["spill_bytes"], kernel["num_warps"]) == (0, 8)
    assert len(executable.build.binary_id) == 16
    assert executable.device_ms([bound], 20) > 0


def test_a_timeline_has_the_kernels_launches(build):
    x = torch.randn(1 << 16, device="cuda")
    executable = build(SCALE, kind="cuda")
    timeline = executable.timeline(bound_to(executable, x, torch.empty_like(x)), 5)
    assert [run.name for run in timeline.kernels] == ["scale_kernel"] * 5
    assert {(run.grid, run.block) for run in timeline.kernels} == {((64, 1, 1), (256, 1, 1))}
    assert all(run.duration_us > 0 for run in timeline.kernels)


def test_ahead_of_time_agrees_with_the_device(build):
    x = torch.randn(1 << 16, device="cuda")
    executable = build(SCALE, kind="cuda")
    bound_to(executable, x, torch.empty_like(x)).launch()
    (ran,) = executable.build.resources["kernels"]
    ref = TensorRef(segment=0, offset=0, dtype="float32", shape=(1 << 16,), strides=(1,))
    call = CallSpec(arguments=(NamedValue(name="x", value=ref),), outputs=(ref,))
    (ahead,) = build(SCALE, kind=None, architecture=ran["architecture"]).ahead_of_time(call)
    for name in ("registers", "spill_bytes", "shared_bytes", "ptx_bytes", "binary_bytes"):
        assert ahead.to_json()[name] == ran[name]


def test_another_source_is_another_binary(build):
    x = torch.randn(1 << 12, device="cuda")
    made = [build(text, kind="cuda") for text in (SCALE, SCALE.replace("* 2", "* 3"))]
    for executable in made:
        bound_to(executable, x, torch.empty_like(x)).launch()
    assert made[0].build.binary_id != made[1].build.binary_id


def test_an_autotuned_kernel_says_what_it_chose(build):
    tuned = SCALE.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': b}) for b in (512, 1024)], key=['n'])\n"
        "@triton.jit",
    ).replace("BLOCK=1024, num_warps=8", "")
    x = torch.randn(1 << 16, device="cuda")
    out = torch.zeros_like(x)
    executable = build(tuned, kind="cuda")
    bound = bound_to(executable, x, out)
    bound.launch()
    bound.collect()
    assert torch.equal(out, 2 * x)
    assert "BLOCK:" in executable.build.resources["configurations"]["scale_kernel"]
    assert len(executable.build.resources["kernels"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)", "power of 2"),
        ("* 2, mask", "* missing, mask", "missing is not defined"),
    ],
)
def test_a_compile_error_carries_the_line(build, old, new, words):
    x = torch.randn(64, device="cuda")
    bound = bound_to(build(SCALE.replace(old, new), kind="cuda"), x, torch.empty_like(x))
    with pytest.raises(CandidateError, match=words) as caught:
        bound.launch()
    assert caught.value.status is Status.COMPILE_ERROR
    assert caught.value.detail.startswith("line ")


def test_too_much_shared_memory_is_a_compile_error(build):
    source = """
@triton.jit
def dot_kernel(a, c, K, BM: tl.constexpr, BK: tl.constexpr):
    r, k = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + r[:, None] * K + (start + k)[None, :])
        y = tl.load(a + (start + k)[:, None] * BM + r[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + r[:, None] * BM + r[None, :], acc)

def kernel_function(a):
    c = torch.empty((128, 128), device=a.device)
    dot_kernel[(1,)](a, c, a.shape[1], BM=128, BK=256, num_stages=5, num_warps=8)
    return c
"""
    a = torch.randn(128, 2048, device="cuda", dtype=torch.float16)
    bound = bound_to(build(source, kind="cuda"), a, torch.empty(128, 128, device="cuda"))
    with pytest.raises(CandidateError, match="bytes of shared memory") as caught:
        bound.launch()
    assert caught.value.status is Status.COMPILE_ERROR


def test_allocating_too_much_is_oom(build):
    source = SCALE.replace("torch.empty_like(x)", "torch.empty(1 << 42, device=x.device)")
    x = torch.randn(64, device="cuda")
    bound = bound_to(build(source, kind="cuda"), x, torch.empty_like(x))
    with pytest.raises(CandidateError) as caught:
        bound.launch()
    assert caught.value.status is Status.OOM


def test_an_illegal_access_is_named_so(tmp_path):
    # It ruins the process's CUDA context, so it happens in a process of its own.
    script = tmp_path / "illegal.py"
    here = Path(__file__).parent
    source = SCALE.replace("out + at, tl", "out + at + (n.to(tl.int64) << 32), tl")
    script.write_text(
        textwrap.dedent(f"""
        import importlib.util, sys, pathlib, torch
        def load(name):
            spec = importlib.util.spec_from_file_location(name, {str(here)!r} + "/" + name + ".py")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            return module
        tests, shared = load("test_gpu"), load("conftest")
        from kopt.errors import CandidateError
        from kopt.model.kernel_file import parse_kernel
        from kopt_triton import TritonBackend
        candidate = parse_kernel(shared.IMPORTS + {source!r}, "triton")
        context = shared.Context(pathlib.Path({str(tmp_path)!r}), device=shared.device("cuda"))
        executable = TritonBackend().kopt_build(candidate, context)
        x = torch.randn(4096, device="cuda")
        bound = tests.bound_to(executable, x, torch.empty_like(x))
        try:
            bound.launch()
            bound.collect()
        except CandidateError as error:
            print(error.status)
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split()[:1] == ["illegal-access"], done.stdout + done.stderr
