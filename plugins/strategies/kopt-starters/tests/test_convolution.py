"""Convolutions: every kind against float64 in the interpreter, at odd sizes."""

from __future__ import annotations

import itertools
import math
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kopt_starters.families.convolution import ConvolutionFamily

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
SMALL = {"CHANNELS": 16, "PIXELS": 64, "DEPTH": 32, "COLS": 32, "ROWS": 4}

CASES = {
    # Dense, tap by tap (many channels) and with taps and channels in one (few).
    "conv1d(x, w, b)": ((1, 33, 21), (5, 33, 3)),
    "conv1d(x, w, stride=3, dilation=4)": ((1, 35, 30), (7, 35, 3)),
    "conv1d(x, w, b, stride=3, dilation=4, padding=2)": ((2, 3, 50), (7, 3, 3)),
    "conv2d(x, w, b, stride=4, padding=2)": ((1, 3, 15, 23), (17, 3, 11, 11)),
    "conv2d(x, w, padding=(2, 4), dilation=(2, 3))": ((1, 37, 11, 13), (18, 37, 5, 3)),
    "conv2d(x, w, b)": ((1, 20, 9, 7), (5, 20, 3, 2)),
    "conv2d(x, w, b, groups=3)": ((2, 15, 5, 6), (21, 5, 3, 3)),
    "conv3d(x, w, b, stride=(1, 2, 1), padding=(1, 0, 2))": ((1, 3, 5, 7, 6), (6, 3, 3, 2, 5)),
    "conv3d(x, w)": ((1, 3, 6, 7, 5), (9, 3, 3, 3, 1)),
    # Pointwise: one row of pixels, unless it is strided or padded.
    "conv2d(x, w, b) ": ((2, 19, 5, 7), (21, 19, 1, 1)),
    "conv3d(x, w, groups=2)": ((2, 38, 3, 5, 7), (20, 19, 1, 1, 1)),
    "conv2d(x, w, stride=2)": ((2, 19, 7, 7), (5, 19, 1, 1)),
    "conv2d(x, w, b, padding=1)": ((2, 19, 4, 5), (5, 19, 1, 1)),
    # Depthwise, and few channels in and out: the direct kernel.
    "conv2d(x, w, groups=2)": ((2, 2, 7, 35), (2, 1, 3, 3)),
    "conv2d(x, w, b, groups=2, padding=(0, 3))": ((1, 2, 7, 33), (4, 1, 3, 7)),
    "conv2d(x, w, b, groups=2, stride=(2, 3), dilation=(2, 1), padding=2)": (
        (1, 2, 9, 40), (2, 1, 3, 5)),
    "conv1d(x, w, b, groups=3, padding=2)": ((2, 3, 71), (3, 1, 5)),
    "conv3d(x, w, b, groups=2, padding=1)": ((1, 2, 2, 4, 31), (2, 1, 3, 3, 2)),
    "conv2d(x, w, b, stride=3, padding=1)": ((1, 3, 11, 13), (2, 3, 2, 2)),
    # Transposed: with stride 1 indexed backwards, else by phases.
    "conv_transpose1d(x, w, b)": ((2, 33, 11), (33, 5, 3)),
    "conv_transpose1d(x, w, dilation=3)": ((2, 6, 21), (6, 5, 5)),
    "conv_transpose1d(x, w, b, stride=2, padding=1, dilation=2)": ((2, 35, 17), (35, 5, 3)),
    "conv_transpose2d(x, w, padding=(1, 3))": ((1, 7, 6, 9), (7, 5, 3, 7)),
    "conv_transpose2d(x, w, b, stride=5, padding=1, dilation=2)": ((2, 6, 4, 5), (6, 7, 3, 3)),
    "conv_transpose2d(x, w, stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=2)": (
        (2, 6, 5, 6), (6, 4, 3, 5)),
    "conv_transpose2d(x, w, b, stride=(1, 2), output_padding=(0, 1))": ((2, 33, 4, 5), (33, 3, 2, 3)),
    "conv_transpose2d(x, w, stride=4, dilation=6)": ((1, 3, 4, 3), (3, 2, 3, 3)),
    "conv_transpose3d(x, w, b, stride=2, padding=(1, 2, 3), output_padding=1, groups=2)": (
        (1, 4, 3, 4, 5), (4, 3, 3, 5, 7)),
    "conv_transpose3d(x, w, stride=2, padding=1, dilation=2)": ((1, 33, 3, 2, 4), (33, 5, 3, 3, 3)),
}  # fmt: skip


def propose(graph):
    return list(ConvolutionFamily().propose(graph, CHECK.TARGET))


def drawn(shapes, dtype=torch.float32, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def with_bias(body, x, weight):
    """Shapes by name; a bias where the body has one."""
    if not body.split("w", 1)[1].startswith(", b"):
        return {"x": x, "w": weight}
    groups = int(body.split("groups=")[1].split(")")[0].split(",")[0]) if "groups" in body else 1
    channels = weight[1] * groups if "transpose" in body else weight[0]
    return {"x": x, "w": weight, "b": (channels,)}


def small(candidate):
    return {name: SMALL[name] for name in candidate.knobs if name in SMALL}


def assert_right(got, function, arguments, stages=1):
    """Compare with float64 within the error of float32 sums and of a rounding to each stage."""
    exact = function(*(value.double() for value in arguments))
    size = function(*(value.double().abs() for value in arguments))
    unit = CHECK.UNIT[got.dtype]
    rounding = unit * (1 if stages == 1 else 0) * exact.abs() + unit * (stages - 1) * 2 * size
    assert got.shape == exact.shape
    assert bool(((got.double() - exact).abs() <= rounding + 2.0**-20 * size).all())


def check(graph_of, body, shapes, dtype="float32", order=None, **more):
    names = ", ".join(shapes)
    graph = graph_of(f"def reference({names}): return F.{body}", dtype=dtype, **shapes)
    function = eval(f"lambda {names}: F.{body}", {"F": F})
    arguments = drawn(shapes.values(), getattr(torch, dtype))
    candidates = propose(graph)
    assert candidates
    for candidate in candidates:
        values = small(candidate) | more
        if order and "ORDER" in candidate.knobs:
            values["ORDER"] = order
        assert_right(CHECK.interpreted(candidate, *arguments, **values), function, arguments)
    return candidates


@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_float64(graph_of, body):
    shapes = with_bias(body, *CASES[body])
    check(graph_of, body, shapes, order=("channels", "pixels")[len(body) % 2])


def nearest_tf32(value):
    """float32 rounded to 10 bits after the point, ties away from zero, as cuDNN rounds."""
    bits = (value.view(torch.int32) + 4096) & -8192
    return torch.where(value == value, bits.view(torch.float32), value)


@pytest.mark.parametrize(
    ("body", "x", "w"),
    [
        ("conv2d(x, w)", (1, 17, 6, 7), (5, 17, 3, 3)),
        ("conv1d(x, w, stride=2, padding=1)", (2, 3, 17), (5, 3, 4)),
        ("conv_transpose2d(x, w, stride=2)", (1, 17, 4, 5), (17, 5, 3, 3)),
        ("conv2d(x, w) ", (1, 17, 6, 7), (5, 17, 1, 1)),
    ],
)
def test_what_tensor_cores_would_cut_off_is_rounded(graph_of, body, x, w):
    graph = graph_of(f"def reference(x, w): return F.{body}", x=x, w=w)
    given = drawn((x, w))
    for value in given:  # the NaN that a GPU makes has all bits set
        value.view(-1)[3] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    given[0].view(-1)[-1] = float("inf")
    exact = eval(f"F.{body}", {"F": F, "x": nearest_tf32(given[0]).double(),
                               "w": nearest_tf32(given[1]).double()})  # fmt: skip
    candidates = propose(graph)
    assert len(candidates) > 1 or w[-1] == 1
    for candidate in candidates:
        got = CHECK.interpreted(candidate, *given, **small(candidate), PRECISION="tf32")
        # Where weights of zero stand for taps that are none, what is not finite reaches further.
        fine = exact.isfinite() & got.isfinite()
        assert fine.any()
        assert not got[~exact.isfinite()].isfinite().any()
        torch.testing.assert_close(got[fine].double(), exact[fine], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "shapes", "expected"),
    [
        ("conv2d(x, w)", ((1, 16, 9, 9), (8, 16, 3, 3)), "tf32"),
        ("conv2d(x, w, groups=2)", ((1, 32, 9, 9), (32, 16, 3, 3)), "tf32x3"),
        ("conv3d(x, w)", ((1, 3, 9, 9, 9), (8, 3, 3, 3, 3)), "tf32x3"),
        ("conv3d(x, w)", ((1, 16, 9, 9, 9), (8, 16, 3, 3, 3)), "tf32"),
    ],
)
def test_float32_is_as_precise_as_the_reference_is_seen_to_be(graph_of, body, shapes, expected):
    graph = graph_of(f"def reference(x, w): return F.{body}", x=shapes[0], w=shapes[1])
    found = [c.knobs["PRECISION"].default for c in propose(graph)]
    assert set(found) == ({"tf32x3", "halves"} if expected == "tf32x3" else {expected})


def test_halves_are_exact_for_values_of_any_size(graph_of):
    """What float16s are not enough for is computed otherwise."""
    graph = graph_of(
        "def reference(x, w): return F.conv3d(x, w)", x=(1, 3, 4, 5, 6), w=(5, 3, 2, 2, 3)
    )
    (candidate,) = [each for each in propose(graph) if "float16s" in each.idea]
    x, w = drawn(((1, 3, 4, 5, 6), (5, 3, 2, 2, 3)))
    x = x * 10.0 ** torch.arange(-18, 18, 6)
    got = CHECK.interpreted(candidate, x, w, **small(candidate))
    assert_right(got, F.conv3d, (x, w))
    x[0, 0, 0, 0, 0] = float("nan")
    got = CHECK.interpreted(candidate, x, w, **small(candidate))
    assert got[..., 0, 0, 0].isnan().all() and got[..., -1, -1, -1].isfinite().all()
    x[0, 0, 0, 0, 0] = -float("inf")
    got = CHECK.interpreted(candidate, x, w, **small(candidate))
    assert torch.equal(got[0, :, 0, 0, 0], -torch.inf * w[:, 0, 0, 0, 0])
    assert got[..., -1, -1, -1].isfinite().all()


@pytest.mark.parametrize("pixels", [16, 256], ids=["images apart", "images in a tile"])
@pytest.mark.parametrize(
    ("body", "w"),
    [
        ("conv2d(x, w, padding=1, groups=2)", (10, 3, 3, 3)),
        ("conv_transpose2d(x, w, stride=2, padding=1, groups=2)", (6, 5, 3, 3)),
    ],
)
def test_each_image_and_each_channel_has_a_scale_of_its_own(graph_of, body, w, pixels):
    """Each of a group too: results are as exact as their own sizes allow."""
    graph = graph_of(f"def reference(x, w): return F.{body}", x=(3, 6, 12, 13), w=w)
    x, weight = drawn(((3, 6, 12, 13), w))
    x = x * 2.0 ** torch.tensor([[-40], [0], [30]]).repeat_interleave(6, 1)[..., None, None]
    x[:, 3:] *= 2.0**9
    rows = torch.arange(w[0 if "transpose" not in body else 1]) * 7.0
    weight = weight * 2.0 ** (
        rows[:, None, None, None] if "transpose" not in body else rows[:, None, None]
    )
    function = eval(f"lambda x, w: F.{body}", {"F": F})
    found = [each for each in propose(graph) if "float16s" in each.idea]
    assert found
    for candidate in found:
        got = CHECK.interpreted(candidate, x, weight, **small(candidate) | {"PIXELS": pixels})
        assert_right(got, function, (x, weight))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("tf32", [True, False])
def test_what_was_seen_of_the_reference_decides(graph_of, groups, tf32):
    """Whatever cuDNN is known to do for such shapes elsewhere."""
    graph = graph_of(
        f"def reference(x, w): return F.conv2d(x, w, groups={groups})",
        x=(1, 32, 9, 9), w=(32, 32 // groups, 3, 3),
    )  # fmt: skip
    graph = replace(graph, call=graph.call.model_copy(update={"tf32": tf32}))
    precisions = [c.knobs["PRECISION"] for c in propose(graph) if "float16s" not in c.idea]
    assert {p.default for p in precisions} == {"tf32" if tf32 else "tf32x3"}
    assert {p.choices for p in precisions} == {("tf32", "tf32x3") if tf32 else ("tf32x3",)}


@pytest.mark.parametrize("body", ["conv2d(x, w)", "conv_transpose2d(x, w, stride=(1, 2))"])
def test_large_images_are_a_program_s_own(graph_of, body):
    weight = (3, 5, 2, 2) if "transpose" in body else (5, 3, 2, 2)
    check(graph_of, body, {"x": (2, 3, 11, 14), "w": weight}, PIXELS=16)


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("conv1d(x, w, b)", "channels"),
        ("conv1d(x, w, stride=3, dilation=4)", "pixels"),
        ("conv2d(x, w, groups=2)", "channels"),
        ("conv_transpose3d(x, w, stride=2, padding=1, dilation=2)", "pixels"),
    ],
)
def test_float16(graph_of, body, order):
    for candidate in check(graph_of, body, with_bias(body, *CASES[body]), "float16", order):
        assert "PRECISION" not in candidate.knobs


CHOSEN = {
    "conv2d(x, w, b, padding=1)": ((2, 17, 5, 6), (5, 17, 3, 3)),
    "conv_transpose2d(x, w, padding=(0, 2))": ((1, 19, 3, 7), (19, 9, 2, 4)),
    "conv3d(x, w, b, stride=(2, 1, 1), groups=2)": ((1, 40, 5, 3, 9), (6, 20, 2, 3, 4)),
    "conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)": ((2, 17, 3, 4), (17, 33, 3, 2)),
    "conv_transpose2d(x, w, stride=(2, 3), dilation=(2, 1))": ((1, 18, 4, 3), (18, 35, 2, 4)),
    "conv_transpose1d(x, w, b, stride=4, groups=2)": ((2, 8, 7), (8, 5, 9)),
}  # fmt: skip


@pytest.mark.parametrize("body", CHOSEN)
def test_every_layout_of_a_copy_with_channels_last(graph_of, body):
    shapes = with_bias(body, *CHOSEN[body])
    names = ", ".join(shapes)
    graph = graph_of(f"def reference({names}): return F.{body}", **shapes)
    function, arguments = eval(f"lambda {names}: F.{body}", {"F": F}), drawn(shapes.values())
    candidates = [each for each in propose(graph) if "channels last" in each.idea]
    assert candidates
    for candidate in candidates:
        layouts = [candidate.knobs[name].choices for name in ("COPY", "NEAR", "JOIN")]
        for copy, near, join in itertools.product(*layouts):
            more = {"COPY": copy, "NEAR": near, "JOIN": join, "ORDER": "channels", "PIXELS": 16}
            got = CHECK.interpreted(candidate, *arguments, **small(candidate) | more)
            assert_right(got, function, arguments)


def geometry(transposed):
    """Extents that have a result: input, kernel, stride, padding, dilation, output padding."""
    side = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3),
                     st.integers(1, 4), st.integers(0, 3))  # fmt: skip

    def fits(each):
        n, k, s, p, d, extra = each
        if transposed:
            return extra < max(s, d) and (n - 1) * s - 2 * p + d * (k - 1) + extra + 1 > 0
        return n + 2 * p - d * (k - 1) > 0

    return st.lists(side.filter(fits), min_size=1, max_size=3)


@pytest.mark.parametrize("transposed", [False, True])
def test_any_geometry(graph_of, transposed):
    @settings(max_examples=6, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(geometry(transposed), st.sampled_from([1, 3]), st.sampled_from([1, 2, 18]),
           st.sampled_from([1, 5]))  # fmt: skip
    def run(sides, groups, cin, cout):
        n, k, s, p, d, extra = map(list, zip(*sides, strict=True))
        assume(math.prod(n) * math.prod(k) < 200 and math.prod(s) < 13)
        settled = f"stride={s}, padding={p}, dilation={d}, groups={groups}"
        kind = f"conv{'_transpose' if transposed else ''}{len(n)}d"
        more = f", output_padding={extra}" if transposed else ""
        channels = [cin * groups, cout] if transposed else [cout * groups, cin]
        check(graph_of, f"{kind}(x, w, {settled}{more})",
              {"x": (2, cin * groups, *n), "w": (*channels, *k)})  # fmt: skip

    run()


SEPARABLE = {
    "F.conv2d(F.conv2d(x, w, padding=1, groups=9), p)": {"p": (5, 9, 1, 1)},
    "F.conv2d(F.conv2d(x, w, b, stride=2, dilation=2, padding=(0, 3), groups=9), p, q)": {
        "b": (9,), "p": (17, 9, 1, 1), "q": (17,)},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("body", SEPARABLE)
def test_separable(graph_of, body, dtype):
    shapes = {"x": (2, 9, 5, 7), "w": (9, 1, 3, 3), **SEPARABLE[body]}
    names = ", ".join(shapes)
    graph = graph_of(f"def reference({names}): return {body}", dtype=dtype, **shapes)
    arguments = drawn(shapes.values(), getattr(torch, dtype))
    candidates = propose(graph)
    assert len(candidates) == 2
    for candidate in candidates:
        got = CHECK.interpreted(candidate, *arguments, **small(candidate))
        function = eval(f"lambda {names}: {body}", {"F": F})
        assert_right(got, function, arguments, stages=2)


def test_other_shapes_and_layouts(graph_of):
    shapes = {"x": (2, 33, 9, 9), "w": (5, 33, 3, 3)}
    x, w = drawn([(1, 6, 13, 35), (3, 7, 35, 2)])
    x, w = x.permute(0, 3, 2, 1), w.permute(1, 2, 3, 0)
    w = w[:, :, :2]
    assert not x.is_contiguous() and not w.is_contiguous()
    for candidate in propose(graph_of("def f(x, w): return F.conv2d(x, w)", **shapes)):
        got = CHECK.interpreted(candidate, x, w, **small(candidate))
        assert_right(got, lambda x, w: F.conv2d(x, w), [x, w])
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, x[:, :, :1], w)
        assert CHECK.interpreted(candidate, x[:0], w).shape == (0, 7, 12, 4)


@pytest.mark.parametrize(
    ("body", "x", "w"),
    [
        ("conv2d(x, w, groups=6)", (1, 6, 5, 5), (6, 1, 3, 3)),
        ("conv2d(x, w, groups=6)", (1, 48, 5, 5), (6, 8, 3, 3)),
        ("conv_transpose2d(x, w, groups=6)", (1, 48, 5, 5), (48, 1, 3, 3)),
    ],
)
def test_other_channels_than_the_groups_have_are_refused(graph_of, body, x, w):
    graph = graph_of(f"def reference(x, w): return F.{body}", x=x, w=w)
    for candidate in propose(graph):
        for count in (x[1] - 1, x[1] // 2):
            with pytest.raises(ValueError, match=r"groups only"):
                CHECK.interpreted(candidate, torch.zeros(1, count, 5, 5), torch.zeros(w))


def test_a_separable_one_of_other_channels_is_refused(graph_of):
    body = "F.conv2d(F.conv2d(x, w, groups=6), p)"
    shapes = {"x": (1, 6, 5, 5), "w": (6, 1, 3, 3), "p": (5, 6, 1, 1)}
    for candidate in propose(graph_of(f"def reference(x, w, p): return {body}", **shapes)):
        x, w, p = drawn(shapes.values())
        for tensors in [(x[:, :5], w, p), (x, w, p[:, :5]), (x, w.expand(6, 2, 3, 3), p)]:
            with pytest.raises(ValueError, match="only"):
                CHECK.interpreted(candidate, *tensors, **small(candidate))


def test_values_that_are_not_finite_stay_where_they_belong(graph_of):
    shapes = {"x": (1, 3, 5, 40), "w": (2, 3, 3, 3)}
    x, w = drawn(shapes.values())
    x[0, 1, 2, 7], x[0, 0, 4, 39] = float("nan"), float("inf")
    for body in ("conv2d(x, w, padding=1)", "conv_transpose2d(x, w.transpose(0, 1), padding=1)"):
        if "transpose" in body:
            body, w = "conv_transpose2d(x, w, padding=1)", w.transpose(0, 1).contiguous()
            shapes["w"] = (3, 2, 3, 3)
        graph = graph_of(f"def reference(x, w): return F.{body}", **shapes)
        exact = eval(f"F.{body}", {"F": F, "x": x, "w": w})
        for candidate in propose(graph):
            alone = {"NEAR": 1} if "NEAR" in candidate.knobs else {}
            got = CHECK.interpreted(candidate, x, w, **small(candidate), **alone)
            assert torch.equal(got.isfinite(), exact.isfinite())


TAILS = [
    "torch.relu({}) * 0.5 + c",
    "torch.sigmoid({} - c).permute(0, 2, 3, 1)",
    "({} * y).to(torch.float16)",
]


@pytest.mark.parametrize(
    ("tail", "body", "channels", "weight"),
    [
        (TAILS[0], "F.conv2d(x, w, padding=1)", 6, (5, 6, 3, 3)),
        (TAILS[1], "F.conv2d(x, w, padding=1)", 20, (1, 20, 3, 3)),
        (TAILS[2], "F.conv2d(x, w)", 20, (5, 20, 1, 1)),
        (TAILS[1], "F.conv2d(x, w)", 20, (5, 20, 1, 1)),
        (TAILS[1], "F.conv2d(x, w, padding=1, groups=5)", 5, (5, 1, 3, 3)),
        (TAILS[1], "F.conv_transpose2d(x, w, stride=2)", 18, (18, 5, 3, 2)),
        (TAILS[0], "F.conv2d(F.conv2d(x, w, padding=1, groups=6), p)", 6, (6, 1, 3, 3)),
    ],
)
def test_what_follows_is_computed_in_the_kernel(graph_of, tail, body, channels, weight):
    shapes = {"x": (2, channels, 5, 7), "w": weight, "p": (7, channels, 1, 1)}
    function = eval(f"lambda x, w, p: {body}", {"F": F})
    made = function(*(torch.empty(shape) for shape in shapes.values())).shape
    shapes |= {"c": (made[1], 1, 1), "y": made[1:]}
    text = tail.format(body)
    graph = graph_of(f"def reference(x, w, p, c, y): return {text}", **shapes)
    arguments = drawn(shapes.values())
    whole = eval(f"lambda x, w, p, c, y: {text}", {"F": F, "torch": torch})
    exact = whole(*(value.double() for value in arguments))
    candidates = propose(graph)
    assert candidates
    for candidate in candidates:
        got = CHECK.interpreted(candidate, *arguments, **small(candidate))
        assert got.dtype == (torch.float16 if "float16" in tail else torch.float32)
        torch.testing.assert_close(got.double(), exact.double(), rtol=1e-3 if "float16" in tail else
                                   2e-6, atol=1e-3 if "float16" in tail else 2e-5)  # fmt: skip
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, arguments[0][:, :, 1:], *arguments[1:], **small(candidate))
