"""Attention in CUDA C++: run by a CPU against float64, compiled for three architectures."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.errors import CandidateError
from kopt_cuda.compiling import LOG, compile_cubin
from kopt_cuda.plan import plan_of
from kopt_cuda.resources import resources_of
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.attention import AttentionKernels

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
ON_CPU = SimpleNamespace(**runpy.run_path(str(HERE.with_name("cuda_on_cpu.py"))))
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
FUSED = "F.scaled_dot_product_attention(q, k, v{})"


@pytest.fixture
def propose(graph_of):
    """Return the CUDA kernels for an attention over arguments of these shapes."""

    def proposed(body, q, k=None, v=None, dtype="float16"):
        shapes = {"q": q, "k": k or q, "v": v or k or q}
        graph = graph_of(f"def reference(q, k, v): return {body}", dtype=dtype, **shapes)
        return list(AttentionKernels().propose(graph, CUDA))

    return proposed


def check(candidate, q, k, dtype: str, *, factor: float = 1.0, knobs, **options) -> None:
    """Compare what a candidate writes with the result in float64."""
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randn(shape, generator=generator) for shape in (q, k, k)]
    given = [(each * factor).to(getattr(torch, dtype)) for each in drawn]
    exact = F.scaled_dot_product_attention(*(each.double() for each in given), **options)
    names = dict(zip("qkv", given, strict=True))
    (got,) = ON_CPU.run(candidate, [(q, given[0].dtype)], names, **knobs)
    CHECK.assert_accurate(got, exact, 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("q", "k", "options", "knobs"),
    [
        ((1, 2, 70, 64), (1, 2, 70, 64), {}, {"WARP_M": 16, "WARPS": 2, "BLOCK_N": 32}),
        ((1, 1, 90, 64), (1, 1, 90, 64), {"is_causal": True}, {"WARPS": 2, "BLOCK_N": 32, "STAGES": 3}),
        ((2, 1, 45, 128), (2, 1, 77, 128), {"scale": 0.3}, {"WARPS": 1, "BLOCK_N": 32}),
        ((1, 1, 90, 128), (1, 1, 33, 128), {"is_causal": True}, {"WARPS": 2}),
        ((1, 1, 33, 64), (1, 1, 90, 64), {"is_causal": True}, {"WARPS": 1}),
        ((1, 1, 33, 64), (1, 1, 1, 64), {}, {}),
    ],
)  # fmt: skip
def test_results_are_those_of_float64(propose, q, k, options, knobs, dtype):
    body = FUSED.format("".join(f", {n}={o}" for n, o in options.items()))
    (candidate,) = propose(body, q, k, dtype=dtype)
    check(candidate, q, k, dtype, knobs=knobs, **options)


def test_scores_that_are_far_apart(propose):
    shape = (1, 1, 40, 64)
    (candidate,) = propose(FUSED.format(", is_causal=True"), shape)
    knobs = {"WARP_M": 16, "WARPS": 1, "BLOCK_N": 32}
    check(candidate, shape, shape, "float16", factor=12.0, knobs=knobs, is_causal=True)


def test_attention_that_is_written_out_and_other_lengths(propose):
    (candidate,) = propose("torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v", (2, 3, 20, 64))
    q, k = (1, 2, 21, 64), (1, 2, 50, 64)
    check(candidate, q, k, "float16", knobs={"WARPS": 1}, scale=0.25)
    other = {name: torch.zeros((1, 2, 21, 128), dtype=torch.float16) for name in "qkv"}
    with pytest.raises(CandidateError, match="requires"):
        ON_CPU.run(candidate, [((1, 2, 21, 128), torch.float16)], other)


@pytest.mark.parametrize(("body", "shape", "dtype"), [
    (FUSED.format(""), (2, 3, 40, 64), "float32"),
    (FUSED.format(""), (2, 3, 40, 96), "float16"),
    (FUSED.format(", attn_mask=q"), (2, 3, 64, 64), "float16"),
    (FUSED.format(", scale=-1.0"), (2, 3, 40, 64), "float16"),
    (FUSED.format("") + " + 1", (2, 3, 40, 64), "float16"),
])  # fmt: skip
def test_other_attentions_have_none(propose, body, shape, dtype):
    assert propose(body, shape, dtype=dtype) == []


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_kernels_compile_without_spills(propose, tmp_path, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    for head in (64, 128):
        for options in ("", ", is_causal=True"):
            (candidate,) = propose(FUSED.format(options), (8, 16, 4096, head), dtype=dtype)
            knobs = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
            flags = [*plan_of(candidate).flags, *knobs]
            compile_cubin(toolchain, candidate.source, architecture, flags, [], tmp_path)
            (used,) = resources_of((tmp_path / LOG).read_text()).values()
            assert used.spill_bytes in (0, None), (head, options)
