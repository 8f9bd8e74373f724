"""The vendor's library as a candidate: what is proposed, and results against float64."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.kernel_file import language_of
from kopt_starters.families import FAMILIES
from kopt_starters.families.vendor import Vendor, VendorPipeline

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

CASES = {
    "conv1d(x, w, b, stride=3, dilation=4, padding=2)": ((2, 3, 50), (7, 3, 3)),
    "conv2d(x, w, b, stride=(1, 2), padding=2)": ((2, 3, 15, 9), (17, 3, 5, 3)),
    "conv2d(x, w)": ((2, 8, 5, 6), (5, 8, 3, 2)),
    "conv2d(x, w, stride=2)": ((1, 3, 7, 9), (5, 3, 1, 1)),
    "conv3d(x, w, b, stride=(2, 1, 1), dilation=2, padding=(1, 0, 2))": (
        (1, 9, 7, 5, 6), (6, 9, 3, 2, 2)),
    "conv_transpose3d(x, w, padding=1)": ((2, 9, 3, 4, 5), (9, 4, 3, 3, 3)),
    "conv3d(x, w, stride=2, dilation=2)": ((2, 1, 5, 6, 7), (18, 1, 2, 3, 3)),
    "conv1d(x, w, b, padding=1)": ((2, 2, 9), (17, 2, 3)),
    "conv2d(x, w, b)": ((2, 19, 5, 7), (21, 19, 1, 1)),
    "conv2d(x, w, b, groups=3)": ((2, 15, 5, 6), (21, 5, 3, 3)),
    "conv3d(x, w, b, stride=(1, 2, 1), padding=(1, 0, 2))": ((1, 3, 5, 7, 6), (6, 3, 3, 2, 5)),
    "conv_transpose1d(x, w, b, stride=2, padding=1, dilation=2)": ((2, 6, 17), (6, 5, 3)),
    "conv_transpose2d(x, w, padding=(1, 3))": ((1, 7, 6, 9), (7, 5, 3, 7)),
    "conv_transpose2d(x, w, b, stride=5, padding=1, dilation=2)": ((2, 6, 4, 5), (6, 7, 3, 3)),
    "conv_transpose2d(x, w, stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=2)": (
        (2, 6, 5, 6), (6, 4, 3, 5)),
    "conv_transpose2d(x, w, b, stride=(1, 2), output_padding=(0, 1))": ((2, 3, 4, 5), (3, 3, 2, 3)),
    "conv_transpose2d(x, w, stride=4, dilation=6)": ((1, 3, 4, 3), (3, 2, 3, 3)),
    "conv_transpose2d(x, w, stride=2, padding=4)": ((1, 3, 5, 6), (3, 2, 3, 4)),
    "conv_transpose3d(x, w, b, stride=2, padding=(1, 2, 3), output_padding=1, groups=2)": (
        (1, 4, 3, 4, 5), (4, 3, 3, 5, 7)),
    "conv_transpose3d(x, w, stride=2, padding=1, dilation=2)": ((1, 5, 3, 2, 4), (5, 4, 3, 3, 3)),
}  # fmt: skip

FLAT = {
    "conv1d(x, w, b, padding=1)",
    "conv1d(x, w, b, stride=3, dilation=4, padding=2)",
    "conv3d(x, w, stride=2, dilation=2)",
}
"""Where a product with places as columns is proposed too."""


def propose(graph, **target):
    return list(Vendor().propose(graph, CHECK.TARGET.model_copy(update=target)))


def drawn(shapes, dtype=torch.float32, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def with_bias(body, x, weight):
    """Shapes by name; a bias where the body has one."""
    if ", b" not in body:
        return {"x": x, "w": weight}
    groups = int(body.split("groups=")[1].split(")")[0].split(",")[0]) if "groups" in body else 1
    channels = weight[1] * groups if "transpose" in body else weight[0]
    return {"x": x, "w": weight, "b": (channels,)}


def settings(candidate, **wanted):
    """Small tiles, and what else is wanted where the candidate has a knob for it."""
    wanted |= {"CHANNELS": 16, "PIXELS": 32}
    return {name: value for name, value in wanted.items() if name in candidate.knobs}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_float64(graph_of, body, other):
    shapes = with_bias(body, *CASES[body])
    names = ", ".join(shapes)
    graph = graph_of(f"def reference({names}): return F.{body}", **shapes)
    arguments = drawn(shapes.values())
    given = dict(zip(shapes, [a.double() for a in arguments], strict=True))
    exact = eval(f"F.{body}", {"F": F, **given})
    candidates = propose(graph)
    assert len(candidates) == (2 if "transpose" in body or body in FLAT else 1)
    for candidate in candidates:
        assert candidate.language == "torch"
        assert candidate.idea.startswith("vendor: ")
        folds = candidate.knobs["FOLD"].choices if "FOLD" in candidate.knobs else ["none"]
        for fold in folds:
            wanted = settings(
                candidate, LAYOUT="first" if other else "last", FOLD=fold, GROUPED=other,
                ALIGN=1 if other else 8,
            )  # fmt: skip
            got = CHECK.interpreted(candidate, *arguments, **wanted)
            assert got.is_contiguous()
            CHECK.assert_accurate(got, exact, 32)


PRODUCTS = {
    "torch.tanh(F.linear(x, w, b) * 2).clamp(-0.5, 0.9)": ((9, 33), (17, 33), (17,)),
    "torch.relu(torch.matmul(x, w) + b).permute(1, 0, 2)": ((3, 5, 8), (8, 7), (5, 7)),
    "F.silu(torch.bmm(x, w.transpose(1, 2))) * b": ((2, 5, 8), (2, 7, 8), (7,)),
}


@pytest.mark.parametrize("text", PRODUCTS)
def test_products_with_what_follows(graph_of, text):
    shapes = dict(zip("xwb", PRODUCTS[text], strict=True))
    (candidate,) = propose(graph_of(f"def reference(x, w, b): return {text}", **shapes))
    assert candidate.language == "torch"
    assert candidate.idea.startswith("vendor: product")
    arguments = drawn(shapes.values())
    given = dict(zip(shapes, [a.double() for a in arguments], strict=True))
    got = CHECK.interpreted(candidate, *arguments, BLOCK=64)
    assert got.is_contiguous()
    CHECK.assert_accurate(got, eval(text, {"F": F, "torch": torch, **given}), 32)
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, arguments[0][..., 1:], *arguments[1:])


TAILS = [
    "torch.relu({}) * 0.5 + c",
    "torch.sigmoid({} - c).permute(0, 2, 3, 1)",
    "({} * y).to(torch.float16)",
    "{}.reshape(2, -1) + 1",
]


@pytest.mark.parametrize("layout", ["last", "first"])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    "body", ["F.conv2d(x, w, b, padding=1)", "F.conv_transpose2d(x, w, b, stride=2)"]
)
def test_what_follows_a_convolution_is_fused(graph_of, body, tail, layout):
    channels = 3 if "transpose" in body else 5
    shapes = {"x": (2, 5, 6, 7), "w": (5, channels, 3, 3) if "transpose" in body else (5, 5, 3, 3),
              "b": (channels,)}  # fmt: skip
    made = eval(
        body, {"F": F, **{name: torch.empty(shape) for name, shape in shapes.items()}}
    ).shape
    shapes |= {"c": (channels, 1, 1), "y": tuple(made)}
    text, names = tail.format(body), ", ".join(shapes)
    candidates = propose(graph_of(f"def reference({names}): return {text}", **shapes))
    assert len(candidates) == 2
    arguments = drawn(shapes.values())
    given = dict(zip(shapes, [a.double() for a in arguments], strict=True))
    exact = eval(text, {"F": F, "torch": torch, **given}).double()
    for candidate in candidates:
        assert "what follows fused" in candidate.idea
        got = CHECK.interpreted(candidate, *arguments, **settings(candidate, LAYOUT=layout))
        assert got.is_contiguous()
        CHECK.assert_accurate(got, exact, 32)
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, arguments[0][:, :, 1:], *arguments[1:])


@pytest.mark.parametrize("allowed", [True, False])
def test_switches_are_put_back(graph_of, monkeypatch, allowed):
    shapes = {"x": (2, 3, 3, 5, 5), "w": (4, 3, 2, 2, 2)}
    candidate, *_ = propose(graph_of("def f(x, w): return F.conv3d(x, w)", **shapes))
    seen, original = [], F.conv3d
    switches = torch.backends.cudnn

    def watched(*arguments):
        seen.append((switches.benchmark, switches.allow_tf32))
        if len(seen) > 2:
            raise RuntimeError("as cuDNN may")
        return original(*arguments)

    monkeypatch.setattr(F, "conv3d", watched)
    before = switches.benchmark, switches.allow_tf32
    try:
        switches.allow_tf32 = allowed
        for exact in (True, False):
            CHECK.interpreted(candidate, *drawn(shapes.values()), EXACT=exact, FOLD="none")
            assert (switches.benchmark, switches.allow_tf32) == (before[0], allowed)
        with pytest.raises(RuntimeError, match="as cuDNN may"):
            CHECK.interpreted(candidate, *drawn(shapes.values()), FOLD="none")
        assert (switches.benchmark, switches.allow_tf32) == (before[0], allowed)
    finally:
        switches.benchmark, switches.allow_tf32 = before
    assert seen == [(True, False), (True, allowed), (True, False)]


@pytest.mark.parametrize(("allowed", "exact"), [(True, False), (True, True), (False, False)])
def test_a_product_is_as_exact_as_a_convolution_would_be(graph_of, monkeypatch, allowed, exact):
    shapes = {"x": (2, 3, 3, 5, 5), "w": (16, 3, 1, 1, 2)}
    graph = graph_of("def f(x, w): return F.conv3d(x, w)", **shapes)
    candidate = next(each for each in propose(graph) if "cuBLAS" in each.idea)
    seen, original = [], torch.bmm
    products, switches = torch.backends.cuda.matmul, torch.backends.cudnn

    def watched(*arguments):
        seen.append(products.allow_tf32)
        return original(*arguments)

    monkeypatch.setattr(torch, "bmm", watched)
    before = products.allow_tf32, switches.allow_tf32
    try:
        switches.allow_tf32 = allowed
        CHECK.interpreted(candidate, *drawn(shapes.values()), EXACT=exact)
        assert (products.allow_tf32, switches.allow_tf32) == (before[0], allowed)
    finally:
        products.allow_tf32, switches.allow_tf32 = before
    assert seen == [allowed and not exact]


def test_without_knobs(graph_of):
    shapes = {"x": (2, 2, 5, 5), "w": (8, 2, 2, 2)}
    graph = graph_of("def f(x, w): return F.conv2d(x, w)", dtype="float16", **shapes)
    candidate = next(each for each in propose(graph) if "cuBLAS" in each.idea)
    assert not candidate.knobs
    x, w = drawn(shapes.values(), torch.float16)
    got = CHECK.interpreted(candidate, x, w)
    CHECK.assert_accurate(got, F.conv2d(x.double(), w.double()))


PIECES = {
    "F.max_pool2d(torch.relu(F.conv2d(x, w, b)), 2)": ((2, 3, 9, 11), (8, 3, 3, 3)),
    "F.softmax(F.conv_transpose3d(x, w, b, stride=2) * 2, dim=1)": ((2, 5, 3, 4, 3), (5, 8, 3, 3, 3)),
    "torch.logsumexp(F.conv2d(x, w, b) + 1, dim=1, keepdim=True)": ((2, 16, 9, 7), (8, 16, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("text", PIECES)
def test_what_follows_by_kernels_of_others(graph_of, text):
    shapes = {"x": PIECES[text][0], "w": PIECES[text][1], "b": (8,)}
    graph = graph_of(f"def reference(x, w, b): return {text}", **shapes)
    family = next(each for each in FAMILIES if isinstance(each, VendorPipeline))
    (candidate,) = family.propose(graph, CHECK.TARGET)
    assert candidate.language == "torch"
    assert candidate.idea.startswith("vendor: pipeline: ")
    assert language_of(Path("kernel.py"), candidate.source) == "torch"
    arguments = drawn(shapes.values())
    given = dict(zip(shapes, [a.double() for a in arguments], strict=True))
    got = CHECK.interpreted(candidate, *arguments)
    CHECK.assert_accurate(got, eval(text, {"F": F, "torch": torch, **given}), 32)


@pytest.mark.parametrize("text", ["F.conv2d(x, w).relu()", "x.sum(1)", "F.unfold(x, 2)"])
def test_what_needs_no_pieces_has_none(graph_of, text):
    graph = graph_of(f"def f(x, w): return {text}", x=(2, 3, 9, 9), w=(8, 3, 3, 3))
    family = next(each for each in FAMILIES if isinstance(each, VendorPipeline))
    assert not list(family.propose(graph, CHECK.TARGET))
