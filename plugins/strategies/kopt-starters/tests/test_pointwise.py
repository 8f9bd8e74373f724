"""Element-wise references: what is covered, results against float64, what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.pointwise import Pointwise

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

UNARY = [
    "torch.relu(x)", "F.leaky_relu(x, 0.2)", "torch.sigmoid(x)", "torch.tanh(x)", "F.silu(x)",
    "x * torch.sigmoid(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.selu(x)",
    "F.elu(x, 1.5)", "F.celu(x, 2.0)", "F.hardsigmoid(x)", "F.hardswish(x)", "F.hardtanh(x, -0.5)",
    "F.relu6(x)", "F.softplus(x)", "F.softplus(x, 2.0, 3.0)", "x / (1 + torch.abs(x))",
    "F.mish(x)", "F.logsigmoid(x)", "F.hardshrink(x)", "F.softshrink(x)", "F.threshold(x, 0.1, 2.0)",
    "torch.exp(x)", "torch.exp2(x)", "torch.expm1(x)", "torch.log(x.abs() + 0.1)",
    "torch.log1p(x.abs())", "torch.log2(x.abs() + 1)", "torch.log10(x.abs() + 1)", "torch.sin(x)",
    "torch.cos(x)", "torch.erf(x)", "torch.sqrt(x.abs())", "torch.rsqrt(x.abs() + 1)",
    "torch.reciprocal(x.abs() + 1)", "x ** 3", "x ** -2", "x.abs() ** 0.5", "x.abs() ** 1.7",
    "torch.pow(2.5, x)", "torch.square(x)", "-x", "torch.sign(x)", "torch.floor(x)", "torch.trunc(x)",
    "1 - x", "3 / (x.abs() + 1)", "torch.sub(x, x * x, alpha=0.5)", "torch.clamp(x, -0.5, 0.7)",
    "torch.clamp(x, max=0.2)", "torch.where(x > 0, x, x * 2)", "x.masked_fill(x > 0, -1.0)",
    "x * (x >= 0.5).to(x.dtype)", "torch.ones_like(x) - x", "x.double().float() * 2",
    "0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3.0))))",
    "F.dropout(x, 0.5, training=False) + 1", "torch.special.xlog1py(x * 0, x) + x",
]  # fmt: skip
FEW = {"torch.special.xlog1py(x * 0, x) + x", "x.double().float() * 2"}
BROADCAST = {
    "x + y": [(3, 5, 7), (7,)],
    "x * y + z": [(3, 5, 8), (5, 1), (3, 1, 1)],
    "torch.maximum(x, y)": [(4, 6), (4, 6)],
    "torch.lerp(x, y, 0.3)": [(4, 6), (6,)],
    "torch.addcmul(x, y, z, value=0.5)": [(4, 6), (4, 6), (6,)],
    "torch.addcdiv(x, y, z * z + 1)": [(4, 6), (4, 6), (6,)],
    "torch.xlogy(x.abs(), y.abs())": [(4, 6), (4, 1)],
    "F.prelu(x, y)": [(2, 5, 7), (5,)],
    "x.transpose(1, 2) + y": [(3, 4, 5), (3, 5, 4)],
    "x.permute(2, 0, 1).reshape(5, 12) * y": [(3, 4, 5), (12,)],
    "(x.view(2, 6, 4) * y).view(12, 4) + z": [(12, 4), (6, 4), (4,)],
    "x.unsqueeze(1) - y.unsqueeze(0)": [(5, 3), (4, 3)],
    "(x + y).expand(3, 4, 5)": [(4, 5), (4, 1)],
    "x.repeat(2, 3) + y": [(3, 4), (12,)],
    "x - y": [(257,), ()],
    "F.mse_loss(x, y, reduction='none')": [(3, 7), (3, 7)],
    "F.smooth_l1_loss(x, y, reduction='none', beta=0.5)": [(3, 7), (3, 7)],
    "F.huber_loss(x, y, reduction='none', delta=0.5)": [(3, 7), (3, 7)],
    "F.batch_norm(x, y, z * z, training=False)": [(2, 3, 5, 7), (3,), (3,)],
}
NOT_COVERED = [
    "x.sum(-1)", "x.cumsum(-1)", "x @ x.transpose(-1, -2)", "F.softmax(x, -1)", "x.roll(1)",
    "torch.rand_like(x)", "x.double() * 2", "torch.div(x, 2, rounding_mode='floor')", "x[1:]",
    "(x + 1, x * 2)", "x.view(-1) [::2]", "F.dropout(x, 0.5)",
]  # fmt: skip


def propose(graph):
    return list(Pointwise().propose(graph, CHECK.TARGET))


def reference(body: str, count: int = 1):
    names = "xyz"[:count]
    return eval(f"lambda {', '.join(names)}: {body}", {"torch": torch, "F": F})


def draw(shape, dtype=torch.float32, seed=3):
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3
    if value.dim() > 1:
        value = value.transpose(0, 1).contiguous().transpose(0, 1)  # not contiguous
    return value.to(dtype)


def check(graph_of, body, shapes, dtype, **values):
    function = reference(body, len(shapes))
    names = ", ".join("xyz"[: len(shapes)])
    graph = graph_of(
        f"def f({names}): return {body}", dtype=str(dtype).removeprefix("torch."),
        **dict(zip("xyz", shapes, strict=False)),
    )  # fmt: skip
    arguments = [draw(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    found = propose(graph)
    assert found
    for candidate in found:
        got = CHECK.interpreted(candidate, *arguments, **values)
        assert got.dtype == function(*arguments).dtype
        CHECK.assert_accurate(got, function(*(a.double() for a in arguments)))
    return found


@pytest.mark.parametrize("body", [body for body in UNARY if body not in FEW])
def test_functions_are_accurate(graph_of, body):
    check(graph_of, body, [(7, 37)], torch.float32)


@pytest.mark.parametrize("body", UNARY[:20:3])
def test_functions_are_accurate_in_float16(graph_of, body):
    check(graph_of, body, [(7, 37)], torch.float16)


@pytest.mark.parametrize("body", ["torch.tanh(x)", "F.softplus(x)", "F.gelu(x)", "torch.expm1(x)"])
def test_functions_for_16_bits_are_off_by_no_more_than_rounding(graph_of, body):
    x = torch.cat(
        [torch.logspace(-3, 0.8, 500), -torch.logspace(-3, 0.6, 500), torch.zeros(1)]
    ).half()
    (candidate,) = propose(graph_of(f"def f(x): return {body}", dtype="float16", x=tuple(x.shape)))
    exact = reference(body)(x.double())
    got = CHECK.interpreted(candidate, x).double()
    assert bool(((got - exact).abs() <= 2.0**-11 * 1.07 * exact.abs() + 2.0**-25).all())
    odd = torch.tensor([float("nan"), float("inf"), float("-inf"), 6e4, -6e4, -0.0]).half()
    (candidate,) = propose(graph_of(f"def f(x): return {body}", dtype="float16", x=(6,)))
    got, exact = CHECK.interpreted(candidate, odd), reference(body)(odd.double()).half()
    assert torch.equal(got.nan_to_num(7), exact.nan_to_num(7))


@pytest.mark.parametrize("body", BROADCAST)
def test_broadcast_and_moved_arguments(graph_of, body):
    check(graph_of, body, BROADCAST[body], torch.float32, BLOCK=256)


@pytest.mark.parametrize(
    ("body", "shapes"),
    [("torch.tanh(x * y + z)", [(2, 3, 5, 67), (3, 1, 1), (5, 1)]), ("x - y", [(5, 128), (5, 1)])],
)
def test_tiles_of_rows(graph_of, body, shapes):
    found = check(graph_of, body, shapes, torch.float32, BLOCK=64)
    ideas = [candidate.idea.split(", ")[-1] for candidate in found]
    assert ideas == ["tiles of rows", "pointwise: one pass over a flat range"]


def test_a_constant_made_of_an_extent_holds_for_it_alone(graph_of):
    (candidate,) = propose(graph_of("def f(x): return x / x.shape[0]", x=(7, 5)))
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, torch.ones(9, 5))


@pytest.mark.parametrize("body", NOT_COVERED)
def test_what_is_not_element_wise(graph_of, body):
    graph = graph_of(f"def f(x): return {body}", x=(4, 6))
    assert graph is None or propose(graph) == []


def test_values_far_from_zero_and_infinities(graph_of):
    x = torch.tensor([-200.0, -90, -20, -1e-6, 0, 1e-6, 1e-3, 20, 60, 90, 200, float("nan")])
    x = torch.cat([x, torch.tensor([float("inf"), float("-inf")])])
    for body in ["torch.tanh(x)", "F.softplus(x)", "F.elu(x)", "torch.expm1(x)", "torch.sigmoid(x)",
                 "F.logsigmoid(x)", "torch.relu(x)", "torch.clamp(x, -1, 1)", "F.mish(x)",
                 "torch.exp(x)", "F.gelu(x)", "torch.log1p(x.abs())"]:  # fmt: skip
        (candidate,) = propose(graph_of(f"def f(x): return {body}", x=tuple(x.shape)))
        got, exact = CHECK.interpreted(candidate, x), reference(body)(x.double())
        error = f"{body}: {got} {exact}"
        same = torch.isclose(got, exact.float(), rtol=2e-6, atol=1e-37, equal_nan=True)
        assert bool(same.all()), error


def test_integers_and_masks(graph_of):
    source = "def f(x, y): return torch.where((x > 0) & ~(y == 0) | (x < -1), x, y * 2)"
    graph = graph_of(source, x=(5, 9), y=(9,), dtype="int64")
    (candidate,) = propose(graph)
    x, y = torch.arange(-20, 25).reshape(5, 9), torch.arange(-4, 5)
    expected = torch.where((x > 0) & ~(y == 0) | (x < -1), x, y * 2)
    assert torch.equal(CHECK.interpreted(candidate, x, y), expected)
    (candidate,) = propose(graph_of("def f(x): return (x > 0.5).logical_not()", x=(40,)))
    x = torch.rand(40)
    assert torch.equal(CHECK.interpreted(candidate, x), x <= 0.5)


def _scaled(value: float):
    from kopt.model.problem import InputSpec
    from kopt.testing.problems import function_problem
    from kopt_starters.graph import Graph
    from kopt_torch.shapes import signature_by_shapes

    inputs = (InputSpec(name="x", shape=(9, 5)), InputSpec(name="s", value=value))
    problem = function_problem("def scaled(x, s):\n    return x * s\n", "scaled", inputs)
    (candidate,) = propose(Graph.of(signature_by_shapes(problem).first))
    return candidate


def test_float_arguments_are_passed_on():
    candidate, x = _scaled(3.14), torch.randn(9, 5)
    torch.testing.assert_close(CHECK.interpreted(candidate, x, 3.14), x * 3.14)
    torch.testing.assert_close(CHECK.interpreted(candidate, x, -0.7), x * -0.7)


def test_other_integer_arguments_are_refused():
    candidate, x = _scaled(3), torch.randn(9, 5)
    torch.testing.assert_close(CHECK.interpreted(candidate, x, 3), x * 3)
    with pytest.raises(ValueError, match="for s = 3 only"):
        CHECK.interpreted(candidate, x, 4)


def test_shapes(graph_of):
    (candidate,) = propose(graph_of("def f(x, y): return x + y", x=(4, 6), y=(4, 6)))
    x = torch.randn(3, 5, 7)
    torch.testing.assert_close(CHECK.interpreted(candidate, x, x), x + x)
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, x, x[0])
    (candidate,) = propose(graph_of("def f(x, y): return x + y", x=(4, 6), y=(6,)))
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, torch.randn(4, 5), torch.randn(5))


def test_nothing_for_other_languages_and_odd_names(graph_of):
    graph = graph_of("def f(x): return x + 1", x=(4,))
    target = CHECK.TARGET.model_copy(update={"language": "cpp"})
    assert list(Pointwise().propose(graph, target)) == []
    assert propose(graph_of("def f(BLOCK): return BLOCK + 1", BLOCK=(4,))) == []


AHEAD = [
    ("F.gelu(x)", [(4096, 393216)], "float32"),
    ("torch.tanh(x)", [(4096, 8192)], "bfloat16"),
    ("F.mish(x)", [(4096, 8192)], "float16"),
    ("torch.tanh(x) * y", [(4097, 16381), (4097, 16381)], "float32"),
    ("torch.expm1(x) + torch.sin(x) * x.abs() ** 1.7", [(1000, 1001)], "float32"),
    ("x * y + z", [(64, 64, 512, 512), (64, 1, 1), (64, 1, 1)], "bfloat16"),
    ("x.transpose(1, 2) * y", [(30, 40, 50), (50, 1)], "float16"),
]


@pytest.mark.parametrize(("body", "shapes", "dtype"), AHEAD)
def test_compiles_for_sm_90(graph_of, body, shapes, dtype):
    names = ", ".join("xyz"[: len(shapes)])
    graph = graph_of(
        f"def f({names}): return {body}", dtype=dtype, **dict(zip("xyz", shapes, strict=False))
    )
    arguments = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes]
    for candidate in propose(graph):
        (kernel,) = CHECK.compiled(candidate, arguments)
        if body in ("torch.tanh(x)", "torch.tanh(x) * y", "x * y + z"):
            assert "ld.global.v4.b32" in kernel.asm["ptx"], "accesses are 128 bits wide"


def test_every_block_and_warps(graph_of):
    (candidate,) = propose(graph_of("def f(x): return torch.exp(x) - 1", x=(5, 1031)))
    x = torch.randn(5, 1031)
    for block in candidate.knobs["BLOCK"].choices:
        torch.testing.assert_close(CHECK.interpreted(candidate, x, BLOCK=block), torch.exp(x) - 1)
    assert set(candidate.knobs) == {"BLOCK", "num_warps"}
