"""Convolutions: what is proposed for which graph, and what compiles for sm_90."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.convolution import ConvolutionFamily

torch = pytest.importorskip("torch")
named = pytest.importorskip("kopt_triton.architectures").named
from_tools = pytest.importorskip("kopt_triton.resources").from_tools

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))


def propose(graph, target=None):
    return list(ConvolutionFamily().propose(graph, target or CHECK.TARGET))


def ideas(graph):
    return [candidate.idea for candidate in propose(graph)]


@pytest.mark.parametrize(
    ("body", "x", "w", "expected"),
    [
        ("conv2d(x, w)", (2, 64, 9, 9), (8, 64, 3, 3), ["channels last", "tap by tap"]),
        ("conv2d(x, w)", (2, 16, 9, 9), (8, 16, 3, 3), ["channels last", "tap by tap", "in one"]),
        ("conv2d(x, w)", (2, 3, 9, 9), (8, 3, 3, 3), ["channels last", "in one"]),
        ("conv2d(x, w)", (2, 64, 9, 9), (8, 64, 1, 1), ["layout as it is"]),
        ("conv2d(x, w, groups=64)", (2, 64, 9, 9), (64, 1, 3, 3), ["direct"]),
        ("conv_transpose2d(x, w)", (2, 64, 9, 9), (64, 8, 3, 3), ["channels last", "tap by tap"]),
        (
            "conv_transpose2d(x, w, stride=2)",
            (2, 64, 9, 9),
            (64, 8, 3, 3),
            ["all phases in one", "by phases, channels last", "by phases"],
        ),
        (
            "conv_transpose2d(x, w, stride=2)",
            (2, 64, 9, 9),
            (64, 32, 3, 3),
            ["by phases, channels last", "by phases"],
        ),
    ],
)
def test_what_is_proposed(graph_of, body, x, w, expected):
    found = ideas(graph_of(f"def reference(x, w): return F.{body}", x=x, w=w))
    assert len(found) == len(expected)
    assert all(part in idea for part, idea in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    "body",
    [
        "F.conv2d(x.double(), w.double())",
        "F.conv2d(F.conv2d(x, w), w)",
        "F.conv2d(x, w * 2)",
        "F.conv2d(x + 1, w)",
        "F.conv2d(x, w).sum(1)",
        "F.conv2d(x[0], w)",
        "(F.conv2d(x, w), F.conv2d(x, w))",
        "F.unfold(x, 2)",
        "x + w.sum()",
    ],
)
def test_what_is_not_understood(graph_of, body):
    graph = graph_of(f"def reference(x, w): return {body}", x=(2, 8, 9, 9), w=(8, 8, 2, 2))
    assert propose(graph) == []


def test_a_separable_one_is_no_other_chain(graph_of):
    shapes = {"x": (2, 8, 9, 9), "w": (8, 1, 2, 2), "p": (4, 8, 1, 1)}

    def found(deep, point, **more):
        body = f"F.conv2d(F.conv2d(x, w, {deep}), p{point})"
        return ideas(graph_of(f"def reference(x, w, p): return {body}", **{**shapes, **more}))

    assert [idea.split(",")[0] for idea in found("groups=8", "")] == [
        "separable convolution", "separable convolution in one kernel"]  # fmt: skip
    assert found("groups=8", ", stride=2") == []
    assert found("groups=8", ", padding=1") == []
    assert found("groups=8", "", p=(4, 8, 2, 1)) == []
    assert found("groups=8", ", groups=2", p=(4, 4, 1, 1)) == []
    assert found("groups=4", "", w=(8, 2, 2, 2)) == []


def test_other_languages_devices_and_names_get_nothing(graph_of):
    shapes = {"x": (2, 8, 9, 9), "w": (8, 8, 3, 3)}
    graph = graph_of("def reference(x, w): return F.conv2d(x, w)", **shapes)
    assert propose(graph, CHECK.TARGET.model_copy(update={"language": "cpp"})) == []
    cpu = CHECK.GPU.model_copy(update={"kind": "cpu"})
    assert propose(graph, CHECK.TARGET.model_copy(update={"device": cpu})) == []
    shapes = {"x": (2, 8, 9, 9), "DEPTH": (8, 8, 3, 3)}
    assert propose(graph_of("def f(x, DEPTH): return F.conv2d(x, DEPTH)", **shapes)) == []


AHEAD = [
    ("F.conv2d(x, w)", "float32", (8, 64, 512, 1024), (128, 64, 3, 3)),
    ("F.conv2d(x, w, padding=1)", "bfloat16", (8, 64, 512, 1024), (128, 64, 3, 3)),
    ("F.conv2d(x, w, stride=4, padding=2)", "float32", (256, 3, 224, 224), (96, 3, 11, 11)),
    ("F.conv3d(x, w)", "bfloat16", (16, 3, 64, 64, 64), (64, 3, 3, 5, 7)),
    ("F.conv2d(x, w)", "float32", (16, 64, 1024, 1024), (128, 64, 1, 1)),
    ("F.conv2d(x, w, groups=64)", "float32", (16, 64, 512, 512), (64, 1, 3, 3)),
    ("F.conv2d(x, w, groups=128)", "bfloat16", (32, 128, 128, 256), (128, 1, 3, 7)),
    ("F.conv_transpose3d(x, w, stride=2, padding=1, dilation=2)", "bfloat16",
     (16, 32, 16, 32, 32), (32, 64, 3, 3, 3)),
    ("F.conv_transpose3d(x, w, stride=2, padding=1, groups=4)", "float32",
     (4, 32, 32, 64, 128), (32, 8, 3, 3, 3)),
    ("F.conv3d(x, w)", "float32", (16, 3, 64, 64, 64), (64, 3, 3, 5, 7)),
    ("F.conv_transpose3d(x, w)", "bfloat16", (8, 48, 96, 96, 96), (48, 24, 3, 3, 3)),
    ("F.conv2d(F.conv2d(x, w, padding=1, groups=64), p)", "float32",
     (16, 64, 512, 512), (64, 1, 3, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "dtype", "x", "w"), AHEAD)
def test_defaults_compile_for_sm_90(graph_of, body, dtype, x, w):
    shapes = {"x": x, "w": w, "p": (128, x[1], 1, 1)}
    given = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes.values()]
    graph = graph_of(f"def reference(x, w, p): return {body}", dtype=dtype, **shapes)
    candidates = propose(graph)
    assert candidates
    for candidate in candidates:
        for kernel in CHECK.compiled(candidate, given):
            used = from_tools(kernel, named("sm_90"))
            assert not used.limits_exceeded
            assert used.spill_bytes is not None and used.spill_bytes <= 64
            if kernel.metadata.name in ("_implicit_gemm", "_fused"):
                assert "wgmma" in kernel.asm["ptx"] or "mma.sync" in kernel.asm["ptx"]
            if kernel.metadata.name == "_product_of_taps":
                assert "wgmma" in kernel.asm["ptx"]
                assert any(copy in kernel.asm["ptx"] for copy in ("cp.async.bulk", "cp.async.cg"))
            if kernel.metadata.name in ("_implicit_gemm", "_product_of_taps"):
                assert min(pixels_of_stores(kernel.asm["ttgir"])) >= 32


def pixels_of_stores(text):
    """Pixels that a warp stores of one channel at once: the first dimension of what is stored."""
    layouts = set(re.findall(r"tt\.store .*<\d+x\d+x!tt\.ptr<\w+>, (#\w+)>", text))
    kinds = re.findall(
        r"(#\w+) = #ttg\.blocked<.*sizePerThread = \[(\d+), \d+\], threadsPerWarp = \[(\d+), \d+\]",
        text,
    )
    found = {name: int(each) * int(lanes) for name, each, lanes in kinds}
    return [found[layout] for layout in layouts]


def test_the_direct_kernel_reads_each_row_of_its_input_once(graph_of):
    shapes = {"x": (2, 8, 64, 256), "w": (8, 1, 3, 3)}
    (candidate,) = propose(graph_of("def f(x, w): return F.conv2d(x, w, groups=8)", **shapes))
    given = [torch.empty(shape, device="meta") for shape in shapes.values()]
    (kernel,) = CHECK.compiled(candidate, given, ROWS=4, COLS=128, num_warps=4)
    assert kernel.asm["ttgir"].count("tt.load") == 9 + (4 + 2) * 3
