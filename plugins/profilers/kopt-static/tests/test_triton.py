"""Triton kernels, compiled ahead of time: what their SASS and PTX show."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"
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
SQUARE = """
@triton.jit
def square_kernel(a, out, N: tl.constexpr):
    row = tl.arange(0, N)
    at = row[:, None] * N + row[None, :]
    value = tl.load(a + at)
    tl.store(out + at, tl.dot(value, value).to(tl.float16))

def kernel_function(a):
    out = torch.empty_like(a)
    square_kernel[(1,)](a, out, N=64)
    return out
"""
BOTH = [(), ("sass",)]


@pytest.mark.parametrize("missing", BOTH)
def test_a_vectorised_kernel(build, missing):
    built = build(IMPORTS + SCALE.format(blocks=[1024]), "triton", (1 << 16,), missing=missing)
    found = built.kernels()["scale_kernel"]
    assert found["block_threads"] == 128
    assert found["static_widest_global_bytes"] == found["static_narrowest_global_bytes"] == 16
    assert found["static_global_loads"] >= 2
    assert found["static_fp32_instructions"] >= 8
    assert found["static_tensor_instructions"] == 0
    assert found["theoretical_occupancy_percent"] == 100
    assert "waves" not in found and "grid_blocks" not in found
    assert any("grid is not known" in note for note in built.profile().notes)


@pytest.mark.parametrize("missing", BOTH)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_a_matrix_product_has_tensor_core_instructions(build, missing, architecture):
    built = build(
        IMPORTS + SQUARE, "triton", (64, 64), "float16", missing=missing, architecture=architecture
    )
    found = built.kernels()["square_kernel"]
    assert found["static_tensor_instructions"] > 0
    assert found["shared_bytes"] > 0
    assert found["blocks_limit_shared"] > 0
    assert found["static_barriers"] > 0


@pytest.mark.parametrize("missing", BOTH)
def test_specializations_are_told_apart(build, missing):
    source = IMPORTS + SCALE.format(blocks=[128, 1024])
    built = build(source, "triton", (1 << 16,), missing=missing)
    blocks = [each["constants"]["BLOCK"] for each in built.evaluation.build.resources["kernels"]]
    assert sorted(blocks) == ["1024", "128"]
    for kernel, block in zip(built.profile().kernels, blocks, strict=True):
        found = {metric.name: metric.value for metric in kernel.metrics}
        assert found["static_widest_global_bytes"] == {"1024": 16, "128": 4}[block]
    assert not any("told apart" in note for note in built.profile().notes)


def test_raw_has_the_opcodes(build):
    (kernel,) = build(IMPORTS + SCALE.format(blocks=[1024]), "triton", (1 << 16,)).profile().kernels
    assert kernel.raw["EXIT"] >= 1
    found = {metric.name: metric.value for metric in kernel.metrics}
    assert kernel.raw["LDG"] == found["static_global_loads"]


@pytest.mark.parametrize("missing", BOTH)
def test_specializations_of_other_calls_are_left_out(build, missing):
    """As on a GPU, where a process has compiled what it needed for every shape it was asked for."""
    every = build(IMPORTS + SCALE.format(blocks=[128, 1024]), "triton", (1 << 16,))
    one = build(IMPORTS + SCALE.format(blocks=[1024]), "triton", (1 << 16,), missing=missing)
    profile = every.with_probe(one.probe).profile()
    (kernel,) = profile.kernels
    found = {metric.name: metric.value for metric in kernel.metrics}
    assert found["static_widest_global_bytes"] == 16
    assert any("does not launch are left out" in note for note in profile.notes)


def test_without_ptx_they_are_not_guessed(build):
    every = build(IMPORTS + SCALE.format(blocks=[128, 1024]), "triton", (1 << 16,))
    one = build(IMPORTS + SCALE.format(blocks=[1024]), "triton", (1 << 16,), missing=["ptx"])
    profile = every.with_probe(one.probe).profile()
    assert len(profile.kernels) == 2
    assert not any(kernel.raw for kernel in profile.kernels)
    assert "scale_kernel: its code is not told apart in the listing" in profile.notes
