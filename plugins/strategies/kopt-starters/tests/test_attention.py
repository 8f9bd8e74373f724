"""Attention: what is recognised, results against float64, and what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.attention import AttentionKernels, recognised

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
FUSED = "F.scaled_dot_product_attention(q, k, v{})"


def attend(q, k, v, **options):
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **options)


@pytest.fixture
def propose(graph_of):
    def proposed(body, q, k=None, v=None, dtype="float32"):
        shapes = {"q": q, "k": k or q, "v": v or k or q}
        graph = graph_of(f"def reference(q, k, v): return {body}", dtype=dtype, **shapes)
        return list(AttentionKernels().propose(graph, CHECK.TARGET))

    return proposed


def draw(*shapes):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize(
    ("q", "k", "options"),
    [
        ((2, 3, 40, 16), (2, 3, 40, 16), {}),
        ((1, 2, 65, 24), (1, 2, 65, 24), {"is_causal": True}),
        ((1, 2, 17, 40), (1, 2, 50, 40), {"scale": 0.3}),
        ((1, 1, 50, 8), (1, 1, 17, 8), {"is_causal": True}),
        ((1, 2, 33, 272), (1, 2, 45, 272), {}),
        ((1, 2, 33, 260), (1, 2, 33, 260), {"is_causal": True, "scale": 0.5}),
    ],
)
def test_results_are_those_of_float64(propose, q, k, options):
    body = FUSED.format("".join(f", {n}={o}" for n, o in options.items()))
    candidates = propose(body, q, k)
    assert len(candidates) == (2 if q[-1] > 256 else 1)
    given = draw(q, k, k)
    exact = attend(*given, **options)
    for candidate in candidates:
        small = {name: knob.choices[0] for name, knob in candidate.knobs.items()}
        for values in ({}, small):
            CHECK.assert_accurate(CHECK.interpreted(candidate, *given, **values), exact, 32)


@pytest.mark.parametrize("head", [32, 288])
def test_float16_and_other_layouts(propose, head):
    shape = (2, 2, 40, head)
    (candidate,) = propose(FUSED.format(""), shape, dtype="float16")
    given = [x.half().transpose(1, 2).contiguous().transpose(1, 2) for x in draw(*[shape] * 3)]
    got = CHECK.interpreted(candidate, *given)
    assert got.dtype == torch.float16
    CHECK.assert_accurate(got, attend(*given), 4)


WRITTEN_OUT = [
    "torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v",
    "F.softmax(torch.matmul(q, k.transpose(2, 3)) / 4.0, dim=3) @ v",
    "torch.softmax((q * 0.25) @ k.mT, -1) @ v",
]


@pytest.mark.parametrize("body", WRITTEN_OUT)
def test_attention_that_is_written_out(graph_of, propose, body):
    shape = (2, 3, 20, 16)
    graph = graph_of(f"def reference(q, k, v): return {body}", q=shape, k=shape, v=shape)
    assert recognised(graph).scale == pytest.approx(0.25)
    (candidate,) = propose(body, shape)
    given = draw(*[shape] * 3)
    CHECK.assert_accurate(CHECK.interpreted(candidate, *given), attend(*given), 32)


def test_written_out_for_matrices_of_three_dimensions(propose):
    shape = (3, 20, 16)
    (candidate,) = propose("torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), 2), v)", shape)
    given = draw(*[shape] * 3)
    CHECK.assert_accurate(CHECK.interpreted(candidate, *given), attend(*given, scale=1.0), 32)


@pytest.mark.parametrize(
    "body",
    [
        "torch.softmax(q @ k.transpose(-2, -1), -2) @ v",
        "torch.softmax(q @ k, -1) @ v",
        "torch.softmax(q @ k.transpose(-2, -1) + 1, -1) @ v",
        "torch.softmax((q + 1) @ k.transpose(-2, -1), -1) @ v",
        "(q @ k.transpose(-2, -1)) @ v",
        "torch.sigmoid(q @ k.transpose(-2, -1)) @ v",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=q)",
        "F.scaled_dot_product_attention(q, k, v) + 1",
    ],
)
def test_what_is_no_attention_alone(propose, body):
    assert propose(body, (2, 3, 16, 16)) == []


def test_other_heads_are_refused_and_other_lengths_are_not(propose):
    (candidate,) = propose(FUSED.format(""), (2, 3, 40, 16))
    given = draw(*[(1, 2, 21, 16)] * 3)
    CHECK.assert_accurate(CHECK.interpreted(candidate, *given), attend(*given), 32)
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, *draw(*[(1, 2, 21, 8)] * 3))


def test_wide_heads_have_all_keys_at_once_or_nothing(propose):
    for candidate in propose(FUSED.format(""), (1, 2, 40, 512)):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *draw(*[(1, 2, 80, 512)] * 3))
    assert propose(FUSED.format(""), (1, 2, 2048, 512), dtype="float16") == []
    (candidate,) = propose(FUSED.format(""), (1, 2, 2048, 512))
    assert "scores, softmax" in candidate.idea


LARGE = [
    ((8, 16, 4096, 64), "float16", ", is_causal=True"),
    ((8, 16, 4096, 128), "bfloat16", ""),
    ((8, 16, 1024, 256), "float16", ""),
    ((8, 16, 1024, 64), "float32", ""),
    ((4, 8, 1024, 256), "float32", ", is_causal=True"),
    ((32, 32, 512, 1024), "float16", ""),
    ((32, 32, 512, 1024), "float32", ""),
]


@pytest.mark.parametrize(("shape", "dtype", "options"), LARGE)
def test_kernels_compile_for_sm_90(propose, shape, dtype, options):
    candidates = propose(FUSED.format(options), shape, dtype=dtype)
    wide = dtype == "float32" and shape[-1] > 128
    assert len(candidates) == 1 + wide * (1 + (shape[-1] == 256))
    given = [torch.empty(shape, dtype=getattr(torch, dtype), device="meta")] * 3
    for candidate in candidates:
        assert CHECK.compiled(candidate, given)
