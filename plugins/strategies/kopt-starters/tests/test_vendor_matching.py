"""The vendor's library as a candidate: for which graphs, and what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.kernel_file import language_of, parse_kernel
from kopt_starters.families.vendor import Vendor

torch = pytest.importorskip("torch")
named = pytest.importorskip("kopt_triton.architectures").named
from_tools = pytest.importorskip("kopt_triton.resources").from_tools

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
SHAPES = {"x": (2, 16, 9, 9), "w": (16, 16, 3, 3)}


def propose(graph, **target):
    return list(Vendor().propose(graph, CHECK.TARGET.model_copy(update=target)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("F.conv2d(x, w)", ["channels last"]),
        ("F.conv2d(x[:, :4], w[:, :4])", []),
        ("F.conv_transpose2d(x, w)", ["as an ordinary one", "between moves"]),
        ("F.conv_transpose2d(x, w, stride=2)", ["by phases", "between moves"]),
        ("F.conv_transpose2d(x, w, stride=2, dilation=2)", ["by phases", "between moves"]),
        ("F.conv2d(x.double(), w.double())", []),
        ("F.conv2d(F.conv2d(x, w), w)", []),
        ("F.conv2d(x, w * 2)", []),
        ("F.conv2d(x, w).sum(1)", []),
        ("F.conv2d(x, w).relu()", ["what follows fused"] * 2),
        ("(F.conv2d(x, w), x + 1)", []),
        ("x + 1", []),
    ],
)
def test_what_is_proposed(graph_of, text, expected):
    found = propose(graph_of(f"def f(x, w): return {text}", **SHAPES))
    assert len(found) == len(expected)
    for part, candidate in zip(expected, found, strict=True):
        assert part in candidate.idea


def test_few_channels_are_folded_and_made_whole(graph_of):
    def knobs(x, w, body="conv3d(x, w)"):
        return propose(graph_of(f"def f(x, w): return F.{body}", x=x, w=w))[0].knobs

    few = knobs((2, 3, 9, 9, 9), (8, 3, 3, 3, 3))
    assert few["FOLD"].choices == ("none", "w", "hw", "dhw")
    assert (few["FOLD"].default, few["ALIGN"].default) == ("hw", 4)
    assert knobs((2, 3, 9, 9, 9), (8, 3, 3, 5, 7))["FOLD"].default == "w"
    flat = knobs((2, 3, 9, 9), (8, 3, 3, 3), "conv2d(x, w)")
    assert flat["FOLD"].choices == ("none", "w", "hw")
    assert flat["ALIGN"].default == 8
    many = knobs((2, 16, 9, 9, 9), (8, 16, 3, 3, 3))
    assert many["FOLD"].choices == ("none", "d")
    assert many["FOLD"].default == "none"
    assert "ALIGN" not in many
    plain = knobs((2, 16, 9, 9), (8, 16, 3, 3), "conv2d(x, w)")
    assert not {"FOLD", "EXACT"} & {*plain}
    groups = knobs((2, 16, 9, 9), (8, 4, 3, 3), "conv2d(x, w, groups=4)")
    assert groups["GROUPED"].default is True


def test_float32_is_exact_where_cudnn_is_for_the_reference(graph_of):
    def knobs(text, dtype="float32", **shapes):
        return propose(graph_of(f"def f(x, w): return {text}", dtype=dtype, **shapes))[0].knobs

    small = {"x": (2, 3, 9, 9, 9), "w": (8, 3, 3, 3, 3)}
    assert knobs("F.conv3d(x, w)", **small)["EXACT"].default is True
    assert "EXACT" not in knobs("F.conv3d(x, w)", "bfloat16", **small)
    assert "EXACT" not in knobs("F.conv2d(x, w)", x=(2, 3, 9, 9), w=(8, 3, 3, 3))
    assert "EXACT" not in knobs("F.conv3d(x, w)", x=(2, 8, 9, 9, 9), w=(8, 8, 3, 3, 3))
    groups = {"x": (2, 16, 9, 9), "w": (16, 4, 3, 3)}
    text = "F.conv_transpose2d(x, w, groups=4)"
    assert knobs(text, **groups)["EXACT"].default is True
    assert knobs(text, "bfloat16", **groups)["GROUPED"].default is False


def test_depthwise_convolutions_are_left_to_others(graph_of):
    graph = graph_of("def f(x, w): return F.conv2d(x, w, groups=6)", x=(2, 6, 9, 9), w=(6, 1, 3, 3))
    assert propose(graph) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.relu(F.linear(x, w) + 1)", True),
        ("torch.relu(F.linear(x, w))", False),
        ("F.linear(x, w)", False),
        ("torch.relu(F.linear(x * 2, w) + 1)", False),
        ("torch.relu(F.linear(x, w).sum(1) + 1)", False),
        ("torch.relu(F.linear(x.double(), w.double()) + 1)", False),
    ],
)
def test_products_that_more_than_one_operator_follows(graph_of, text, found):
    graph = graph_of(f"def f(x, w): return {text}", x=(8, 16), w=(4, 16))
    assert bool(propose(graph)) is found


def test_other_languages_devices_and_names_get_nothing(graph_of):
    graph = graph_of("def f(x, w): return F.conv2d(x, w)", **SHAPES)
    assert propose(graph, language="cuda")
    assert propose(graph, language="cpp") == []
    assert propose(graph, device=CHECK.GPU.model_copy(update={"kind": "cpu"})) == []
    for name in ("math", "vendor", "LAYOUT", "_x"):
        shapes = {name: SHAPES["x"], "w": SHAPES["w"]}
        graph = graph_of(f"def f({name}, w): return F.conv2d({name}, w).relu()", **shapes)
        assert propose(graph) == []


def test_a_file_of_it_is_of_language_torch(graph_of, tmp_path):
    (candidate,) = propose(graph_of("def f(x, w): return F.conv2d(x, w)", **SHAPES))
    assert language_of(tmp_path / "kernel.py", candidate.source) == "torch"
    read = parse_kernel(candidate.source, "torch")
    assert (read.entry, read.knobs, read.id) == (candidate.entry, candidate.knobs, candidate.id)


def test_a_product_instead_of_few_channels(graph_of):
    def found(body, x, w):
        ideas = [c.idea for c in propose(graph_of(f"def f(x, w): return F.{body}", x=x, w=w))]
        return any("cuBLAS" in idea for idea in ideas)

    assert not found("conv2d(x, w)", (2, 64, 9, 9), (8, 64, 1, 1))
    assert found("conv2d(x, w, padding=1)", (2, 3, 9, 9), (32, 3, 3, 3))
    assert not found("conv2d(x, w)", (2, 3, 9, 9), (16, 3, 3, 3))
    assert not found("conv2d(x, w)", (2, 16, 9, 9), (256, 16, 3, 3))
    assert not found("conv2d(x, w, groups=2)", (2, 64, 9, 9), (8, 32, 1, 1))
    assert not found("conv_transpose2d(x, w)", (2, 64, 9, 9), (64, 8, 1, 1))


AHEAD = [
    ("F.conv2d(x, w)", "float32", (8, 64, 512, 1024), (128, 64, 3, 3)),
    ("F.conv2d(x, w, stride=4, padding=2)", "float32", (256, 3, 224, 224), (96, 3, 11, 11)),
    ("torch.tanh(F.conv2d(x, w)) * 2", "float32", (16, 3, 255, 255), (64, 3, 3, 3)),
    ("torch.tanh(F.conv3d(x, w)) * 2", "bfloat16", (16, 3, 64, 64, 64), (64, 3, 3, 5, 7)),
    ("F.conv_transpose3d(x, w, stride=2, padding=1, dilation=2)", "bfloat16",
     (16, 32, 16, 32, 32), (32, 64, 3, 3, 3)),
    ("torch.sigmoid(F.linear(x, w)) * 2", "float32", (1024, 8192), (8192, 8192)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "dtype", "x", "w"), AHEAD)
def test_defaults_compile_for_sm_90(graph_of, body, dtype, x, w):
    given = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in (x, w)]
    candidates = propose(graph_of(f"def f(x, w): return {body}", dtype=dtype, x=x, w=w))
    assert candidates
    for candidate in candidates:
        for kernel in CHECK.compiled(candidate, given):
            used = from_tools(kernel, named("sm_90"))
            assert not used.limits_exceeded
            assert not used.spill_bytes


def test_moves_are_wide_both_ways(graph_of):
    x, w = (8, 64, 512, 1024), (128, 64, 1, 1)
    (candidate,) = propose(graph_of("def f(x, w): return F.conv2d(x, w)", x=x, w=w))
    given = [torch.empty(shape, device="meta") for shape in (x, w)]
    kernels = CHECK.compiled(candidate, given)
    moving = [k.asm["ptx"] for k in kernels if k.metadata.name in ("_channels_last", "_finish")]
    assert len(moving) == 2
    for text in moving:
        assert "ld.global.v4" in text
        assert "st.global.v4" in text
