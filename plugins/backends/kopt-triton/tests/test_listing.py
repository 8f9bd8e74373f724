"""Listings of kernels that are compiled for a GPU which is not here."""

from __future__ import annotations

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.verification import Status

pytest.importorskip("triton")

SCALE = """
@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    for block in {blocks}:
        scale_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
"""
MATMUL = """
@triton.jit
def matmul_kernel(a, b, c, K, BM: tl.constexpr, BK: tl.constexpr):
    rm = tl.arange(0, BM)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * BM + rm[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * BM + rm[None, :], acc.to(tl.float16))

def kernel_function(a, b):
    c = torch.empty((256, 256), device=a.device, dtype=a.dtype)
    matmul_kernel[(1,)](a, b, c, a.shape[1], BM=256, BK=128, num_warps=8, num_stages=4)
    return c
"""
VECTORS = [((1 << 16,), torch.float32)] * 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_ptx_and_sass_of_each_architecture(build, shapes_only, architecture):
    executable = build(SCALE.format(blocks=[1024]), architecture=architecture)
    call = shapes_only(*VECTORS)
    assert executable.listing_kinds == ("ptx", "sass")
    ptx = executable.listing("ptx", call)
    assert list(ptx) == ["scale_kernel"]
    assert ".visible .entry scale_kernel(" in ptx["scale_kernel"]
    assert f".target {architecture}" in ptx["scale_kernel"]
    sass = executable.listing("sass", call)["scale_kernel"]
    assert "EXIT" in sass and "STG" in sass and "/*0000*/" in sass


def test_kernels_of_one_name_have_their_constants_with_them(build, shapes_only):
    executable = build(SCALE.format(blocks=[1024, 256]), architecture="sm_90")
    found = executable.listing("ptx", shapes_only(*VECTORS))
    assert [name.split()[1] for name in found] == ["BLOCK=1024", "BLOCK=256"]
    assert len(set(found.values())) == 2


def test_a_kernel_that_does_not_fit_has_its_figures_and_its_listing(build, shapes_only):
    executable = build(MATMUL, architecture="sm_80")
    half = ((256, 1024), torch.float16)
    call = shapes_only(half, ((1024, 256), torch.float16), ((256, 256), torch.float16))
    with pytest.raises(CandidateError, match="shared memory") as caught:
        executable.ahead_of_time(call)
    assert caught.value.status is Status.COMPILE_ERROR
    (kernel,) = executable.build.resources["kernels"]
    assert kernel["shared_bytes"] > 166912
    assert kernel["limits_exceeded"] == [f"shared memory: {kernel['shared_bytes']} of 166912 bytes"]
    assert "HMMA" in executable.listing("sass", call)["matmul_kernel"]


def test_a_kernel_that_does_not_compile_has_no_listing(build, shapes_only):
    broken = SCALE.format(blocks=[1024]).replace("arange(0, BLOCK)", "arange(0, 1000)")
    executable = build(broken, architecture="sm_90")
    with pytest.raises(CandidateError, match="power of 2"):
        executable.listing("ptx", shapes_only(*VECTORS))
