"""Rotary embeddings: what is recognised, results against float64, and what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.rotary import Rotary

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

X, HALF, FULL = (2, 3, 10, 16), (10, 8), (10, 16)
FORMS = {
    "halves, turned": (
        "h = x.shape[-1] // 2; r = torch.cat((-x[..., h:], x[..., :h]), -1); return x * c + r * s",
        FULL,
    ),
    "halves, chunks and half tables": (
        "a, b = x.chunk(2, -1); return torch.cat([a * c - b * s, b * c + a * s], -1)", HALF),
    "halves, other direction": (
        "a, b = x.chunk(2, -1); return torch.cat([a * c + b * s, b * c - s * a], -1)", HALF),
    "neighbours, strided": (
        "a, b = x[..., ::2], x[..., 1::2]; "
        "return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)", HALF),
    "neighbours, turned": (
        "r = torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape); return x * c + r * s",
        FULL,
    ),
    "neighbours, unbound": (
        "a, b = x.view(2, 3, 10, 8, 2).unbind(-1); "
        "return torch.stack((a * c - b * s, b * c + a * s), -1).view(x.shape)", HALF),
    "tables with a batch": (
        "c, s = c.unsqueeze(1), s.unsqueeze(1); h = 8; "
        "r = torch.cat((-x[..., h:], x[..., :h]), -1); return (x * c) + (r * s)", (2, 10, 16)),
    "tables with ones": (
        "c, s = c.unsqueeze(1), s.unsqueeze(1); a, b = x.split(8, -1); "
        "return torch.cat([a * c - b * s, b * c + a * s], -1)", (1, 10, 8)),
    "tables for heads": (
        "a, b = x.chunk(2, -1); return torch.cat([a * c - b * s, b * c + a * s], -1)", (3, 1, 8)),
}  # fmt: skip


def source(body, names="x, c, s"):
    return f"def reference({names}):\n    {body}\n"


def run(text, *given):
    space = {"torch": torch}
    exec(text, space)
    return space["reference"](*given)


def propose(graph):
    return list(Rotary().propose(graph, CHECK.TARGET))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_float64(graph_of, form, dtype):
    body, table = FORMS[form]
    (candidate,) = propose(graph_of(source(body), dtype=dtype, x=X, c=table, s=table))
    given = [torch.randn(shape).to(getattr(torch, dtype)) for shape in (X, table, table)]
    exact = run(source(body), *(each.double() for each in given))
    for values in ({}, {"ROWS": candidate.knobs["ROWS"].choices[0]}):
        CHECK.assert_accurate(CHECK.interpreted(candidate, *given, **values), exact, 4)


def test_two_results_and_other_layouts(graph_of):
    turn = "torch.cat((-{0}[..., 5:], {0}[..., :5]), -1)"
    body = f"return x * c + {turn.format('x')} * s, y * c + {turn.format('y')} * s"
    text = source(body, "x, y, c, s")
    graph = graph_of(text, x=(2, 7, 4, 10), y=(2, 7, 2, 10), c=(7, 1, 10), s=(7, 1, 10))
    (candidate,) = propose(graph)
    given = [torch.randn(2, h, 7, 10).transpose(1, 2) for h in (4, 2)]
    given += [torch.randn(1, 10, 7).permute(2, 0, 1) for _ in range(2)]
    got = CHECK.interpreted(candidate, *given)
    assert isinstance(got, tuple)
    for one, exact in zip(got, run(text, *(g.double() for g in given)), strict=True):
        CHECK.assert_accurate(one, exact, 4)


@pytest.mark.parametrize(
    "body",
    [
        "return x * c + x * s",
        "return x * c",
        "r = torch.cat((-x[..., 4:], x[..., :4]), -1); return x * c + r * s",
        "r = torch.cat((-x[..., 8:], x[..., :8]), -2).view(x.shape); return x * c + r * s",
        "r = torch.cat((-x[..., 8:], x[..., :8]), -1); return x * c + r.abs() * s",
        "r = torch.cat((-x[..., 8:], x[..., :8]), -1); return x * c.flip(-1) + r * s",
        "r = torch.cat((-x[..., 8:], x[..., :8]), -1); return x * c + r * s + x",
        "r = torch.cat((-x[..., 8:], x[..., :8]), -1); return x.transpose(0, 1) * c + r * s",
    ],
)
def test_what_is_no_rotary_embedding(graph_of, body):
    shapes = {"x": (2, 2, 16, 16), "c": (16, 16), "s": (16, 16)}
    assert propose(graph_of(source(body), **shapes)) == []


def test_other_extents_are_right_or_refused(graph_of):
    body, table = FORMS["halves, turned"]
    (candidate,) = propose(graph_of(source(body), x=X, c=table, s=table))
    given = [torch.randn(1, 5, 3, 16), torch.randn(3, 16), torch.randn(3, 16)]
    exact = run(source(body), *(each.double() for each in given))
    CHECK.assert_accurate(CHECK.interpreted(candidate, *given), exact, 4)
    for wrong in ([given[0], given[1][:2], given[2]], [given[0][..., :8], *given[1:]]):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *wrong)


@pytest.mark.parametrize("form", ["halves, turned", "neighbours, strided"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kernels_compile_for_sm_90(graph_of, form, dtype):
    body = FORMS[form][0]
    shapes = {"x": (2, 32, 4096, 128)} | dict.fromkeys(
        "cs", (4096, 128 if "turned" in form else 64)
    )
    (candidate,) = propose(graph_of(source(body), dtype=dtype, **shapes))
    kind = getattr(torch, dtype)
    given = [torch.empty(shape, dtype=kind, device="meta") for shape in shapes.values()]
    assert CHECK.compiled(candidate, given)
