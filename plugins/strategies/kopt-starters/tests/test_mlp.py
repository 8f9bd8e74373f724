"""Gated MLPs: what is recognised, results against float64 in the interpreter, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.problem import InputSpec, Problem, ReferenceSource
from kopt.testing.problems import function_problem
from kopt_starters.families import FAMILIES
from kopt_starters.families.mlp import GatedMlp
from kopt_starters.graph import Graph
from kopt_triton.architectures import named

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from_tools = pytest.importorskip("kopt_triton.resources").from_tools

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
SMALL = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP": 2}
GATED = "F.silu(F.linear(x, a)) * F.linear(x, b)"
WEIGHTS = {"x": (2, 17, 19), "a": (37, 19), "b": (37, 19)}
WHOLE = {"x": (2, 17, 19), "w": (74, 19)}

# The reference's last line, what comes before it, and shapes.
FORMS = {
    "linear": (GATED, "", WEIGHTS),
    "the other factor is gated": ("F.linear(x, a) * F.silu(F.linear(x, b))", "", WEIGHTS),
    "products": ("F.silu(x @ a) * (x @ b)", "", {"x": (33, 19), "a": (19, 37), "b": (19, 37)}),
    "a layout each": ("F.silu(x.T @ a) * (x.T @ b.T)", "",
                      {"x": (19, 33), "a": (19, 37), "b": (37, 19)}),
    "sizes that divide": (GATED, "", {"x": (32, 48), "a": (64, 48), "b": (64, 48)}),
    "one row": (GATED, "", {**WEIGHTS, "x": (1, 19)}),
    "depth 1": (GATED, "", {"x": (5, 1), "a": (3, 1), "b": (3, 1)}),
    "biases": ("F.silu(F.linear(x, a, c)) * F.linear(x, b, d)", "",
               {**WEIGHTS, "c": (37,), "d": (37,)}),
    "one bias": ("F.silu(F.linear(x, a)) * F.linear(x, b, d)", "", {**WEIGHTS, "d": (37,)}),
    "added biases": ("F.silu(x @ a + c) * (x @ b + d)", "",
                     {"x": (17, 19), "a": (19, 37), "b": (19, 37), "c": (37,), "d": (1, 37)}),
    "silu written out": ("g * torch.sigmoid(g) * F.linear(x, b)", "g = F.linear(x, a)", WEIGHTS),
    "a residual": (f"{GATED} + r", "", {**WEIGHTS, "r": (2, 17, 37)}),
    "chunks": ("F.silu(g) * u", "g, u = F.linear(x, w).chunk(2, -1)", WHOLE),
    "chunks of columns": ("F.silu(g) * u", "g, u = (x @ w).chunk(2, dim=2)",
                          {"x": (2, 17, 19), "w": (19, 74)}),
    "chunks with bias": ("F.silu(u) * g", "g, u = F.linear(x, w, c).chunk(2, -1)",
                         {**WHOLE, "c": (74,)}),
    "split": ("F.silu(g) * u", "g, u = F.linear(x, w).split([37, 37], -1)", WHOLE),
    "slices": ("F.silu(y[..., :37]) * y[..., 37:]", "y = F.linear(x, w)", WHOLE),
    "gated linear unit": ("F.glu(F.linear(x, w, c))", "", {**WHOLE, "c": (74,)}),
    "experts": ("F.silu(x @ a) * (x @ b)", "",
                {"x": (3, 17, 19), "a": (3, 19, 37), "b": (3, 19, 37)}),
}  # fmt: skip
ACTIVATIONS = [
    "F.silu({})", "F.gelu({})", "F.gelu({}, approximate='tanh')", "F.relu({})",
    "torch.sigmoid({})", "torch.tanh({})", "F.mish({})",
]  # fmt: skip


@pytest.fixture
def traced(graph_of):
    """Return the graph of a reference, and the reference."""

    def made(body, before="", dtype="float32", **shapes):
        source = f"def reference({', '.join(shapes)}):\n    {before or 'pass'}\n    return {body}\n"
        scope = {"torch": torch, "F": F}
        exec(source, scope)
        return graph_of(source, dtype=dtype, **shapes), scope["reference"]

    return made


def propose(graph):
    return list(GatedMlp().propose(graph, CHECK.TARGET))


def draw(shapes, dtype="float32"):
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(s, generator=generator).to(getattr(torch, dtype)) for s in shapes]


def check(candidate, reference, given, units=32, **values):
    got = CHECK.interpreted(candidate, *given, **values)
    assert got.dtype == given[0].dtype
    CHECK.assert_accurate(got, reference(*(each.double() for each in given)), units)


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_those_of_float64(traced, name):
    body, before, shapes = FORMS[name]
    graph, reference = traced(body, before, **shapes)
    (candidate,) = propose(graph)
    given = draw(shapes.values())
    for values in ({}, SMALL, SMALL | {"PRECISION": "ieee"}):
        check(candidate, reference, given, **values)


@pytest.mark.parametrize("name", ["linear", "biases", "sizes that divide", "chunks with bias"])
def test_float16_is_rounded_once(traced, name):
    body, before, shapes = FORMS[name]
    graph, reference = traced(body, before, "float16", **shapes)
    (candidate,) = propose(graph)
    check(candidate, reference, draw(shapes.values(), "float16"), 2, **SMALL)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(traced, activation):
    body = f"{activation.format('F.linear(x, a)')} * F.linear(x, b)"
    for dtype, units in (("float32", 32), ("float16", 2)):
        graph, reference = traced(body, dtype=dtype, **WEIGHTS)
        (candidate,) = propose(graph)
        check(candidate, reference, draw(WEIGHTS.values(), dtype), units, **SMALL)


DOWN = {
    "plain": (f"F.linear({GATED}, d)", "", {**WEIGHTS, "d": (19, 37)}),
    "bias, residual": (f"x + F.linear({GATED}, d, c)", "", {**WEIGHTS, "d": (19, 37), "c": (19,)}),
    "chunks": ("(F.gelu(g) * u) @ d", "g, u = (x @ w).chunk(2, -1)",
               {"x": (2, 17, 19), "w": (19, 74), "d": (37, 19)}),
}  # fmt: skip


@pytest.mark.parametrize("name", DOWN)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_down_projection_follows_in_a_second_kernel(traced, name, dtype):
    body, before, shapes = DOWN[name]
    graph, reference = traced(body, before, dtype, **shapes)
    found = [each for family in FAMILIES for each in family.propose(graph, CHECK.TARGET)]
    assert found[0].idea.startswith("pipeline: mlp: ")
    assert found[0].idea.count("; then ") == 1
    small = {n: 16 if "BLOCK" in n else k.default for n, k in found[0].knobs.items()}
    given = [each / 4 for each in draw(shapes.values(), dtype)]
    check(found[0], reference, given, 64 if dtype == "float32" else 4, **small)


def test_it_comes_before_one_kernel_for_each_product(traced):
    graph, _ = traced(GATED, **WEIGHTS)
    found = [each for family in FAMILIES for each in family.propose(graph, CHECK.TARGET)]
    assert [each.idea.partition(":")[0] for each in found] == ["mlp", "pipeline"]
    assert found[1].idea.count("product: ") == 2
    graph, _ = traced(f"F.linear({GATED}, d)", **WEIGHTS, d=(19, 37))
    found = [each for family in FAMILIES for each in family.propose(graph, CHECK.TARGET)]
    assert [each.idea.count("; then ") for each in found] == [1, 2]


def test_what_comes_before_is_a_kernel_of_its_own(traced):
    body = f"x + F.linear({GATED.replace('x,', 'h,')}, d)"
    before = "h = F.layer_norm(x, (19,))"
    graph, reference = traced(body, before, **WEIGHTS, d=(19, 37))
    found = list(FAMILIES[-1].propose(graph, CHECK.TARGET))
    assert "; then mlp: " in found[0].idea
    given = [each / 4 for each in draw([*WEIGHTS.values(), (19, 37)])]
    check(found[0], reference, given, 64)


def test_names_that_an_entry_cannot_have(traced):
    shapes = {"x": (16, 16), "num_warps": (16, 16)}
    assert propose(traced("F.silu(x @ num_warps) * (x @ num_warps)", **shapes)[0]) == []


SQUARE = {"x": (16, 16), "a": (16, 16), "b": (16, 16), "c": (16, 16)}


@pytest.mark.parametrize(
    "body",
    [
        "x @ a",
        "F.silu(x @ a)",
        "F.silu(x @ a) * b",
        "F.silu(x @ a) * (b @ c)",
        "F.silu(x @ a) * (x.T @ b)",
        "F.silu(x @ a) * (x @ b).T",
        "(F.silu(x @ a) * (x @ b)).T",
        "F.silu(x @ a) * (x @ b) * (x @ c)",
        "F.silu(x @ a) * ((x + 1) @ b)",
        "F.silu(x @ a) * (x @ b.exp())",
        "F.silu(x @ a) * (x @ b[:, :1])",
        "torch.softmax(x @ a, -1) * (x @ b)",
        "(F.silu(x @ a) * (x @ b)).sum(-1)",
        "F.silu(x @ a) * torch.addmm(c, x, b, alpha=2)",
        "F.silu((x @ a)[:, :8]) * (x @ a)[:, 4:12]",
        "F.silu((x @ a)[:8]) * (x @ a)[8:]",
        "F.silu((x @ a).chunk(2, 0)[0]) * (x @ a).chunk(2, 0)[1]",
        "F.silu((x @ a).chunk(4, 1)[0]) * (x @ a).chunk(4, 1)[1]",
        "F.glu(x @ a, 0)",
        "F.glu(x)",
        "F.silu(x) * x",
    ],
)
def test_what_is_no_gated_mlp_alone(traced, body):
    assert propose(traced(body, **SQUARE)[0]) == []


@pytest.mark.parametrize("before", [
    "y = x @ a; g, u = y[:, :8], y", "y = x @ a; g, u = y[:, :8].sum(0), y[:, 8:]",
    "y = (x @ a).view(16, 2, 8); g, u = y[:, 0], y[:, 1]", "y = x @ a; g, u = y[:, :8], y[:, :8]",
    "y = torch.addmm(b, x, a); g, u = y.chunk(2, -1)", "y = x @ a; g, u = y[:, ::2], y[:, 1::2]",
])  # fmt: skip
def test_one_product_that_is_not_two_halves(traced, before):
    body = "F.silu(g) * u.sum() if g.shape[-1] != u.shape[-1] else F.silu(g) * u"
    assert propose(traced(body, before, **SQUARE)[0]) == []


def test_other_dtypes_and_no_elements(traced):
    for dtype in ("float64", "int64"):
        graph, _ = traced("(x @ a) * (x @ b)", dtype=dtype, x=(4, 4), a=(4, 4), b=(4, 4))
        assert propose(graph) == []
    assert propose(traced("F.silu(x @ a) * (x @ b)", x=(4, 0), a=(0, 4), b=(0, 4))[0]) == []


def test_other_numbers_of_rows_and_layouts_are_computed_and_other_widths_refused(traced):
    body, before, shapes = FORMS["chunks with bias"]
    graph, reference = traced(body, before, **shapes)
    (candidate,) = propose(graph)
    x, w, c = draw([(3, 23, 19), (19, 74), (74,)])
    check(candidate, reference, [x, w.T, c], **SMALL)
    check(candidate, reference, [x.transpose(0, 1), w.T, c], **SMALL)
    assert CHECK.interpreted(candidate, x[:0], w.T, c).shape == (0, 23, 37)
    for others in ([x[0], w.T, c], [x[..., :18], w.T, c], [x, w.T[:70], c], [x, w.T, c[:1]]):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *others)


def test_a_kernel_for_one_row_takes_several(traced):
    shapes = {**WHOLE, "x": (1, 19), "c": (74,)}
    graph, reference = traced("F.gelu(g) * u", "g, u = F.linear(x, w, c).chunk(2, -1)", **shapes)
    (candidate,) = propose(graph)
    check(candidate, reference, draw([(21, 19), (74, 19), (74,)]), **SMALL)


def test_rows_are_fixed_where_what_follows_looks_at_them(traced):
    body, before, shapes = FORMS["a residual"]
    (candidate,) = propose(traced(body, before, **shapes)[0])
    given = draw([(3, 17, 19), (37, 19), (37, 19), (3, 17, 37)])
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, *given)


MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Linear(19, 74)

    def forward(self, x, given):
        gate, up = self.both(x).chunk(2, dim=-1)
        return F.silu(gate) * up * given


def get_inputs():
    return [torch.randn(2, 17, 19), torch.randn(37)]


def get_init_inputs():
    return []
"""


def test_weights_may_be_state_and_arguments_have_the_kernels_names():
    from kopt_torch.shapes import signature_by_shapes

    source = ReferenceSource(kind="kernelbench", source=MODULE, entry="Model")
    problem = Problem(name="mlp", format="test", reference=source)
    graph = Graph.of(signature_by_shapes(problem).first)
    assert [argument.name for argument in graph.arguments][2:] == ["both.weight", "both.bias"]
    (candidate,) = propose(graph)

    def reference(x, given, weight, bias):
        gate, up = F.linear(x, weight, bias).chunk(2, dim=-1)
        return F.silu(gate) * up * given

    check(candidate, reference, draw([(2, 17, 19), (37,), (74, 19), (74,)]), **SMALL)


def test_a_number_is_an_argument_of_the_kernel():
    from kopt_torch.shapes import signature_by_shapes

    source = (
        "def reference(x, w, s):\n    g, u = (x @ w).chunk(2, -1)\n    return (g * s).relu() * u\n"
    )
    inputs = (
        InputSpec(name="x", shape=(17, 19)), InputSpec(name="w", shape=(19, 74)),
        InputSpec(name="s", value=0.25),
    )  # fmt: skip
    graph = Graph.of(signature_by_shapes(function_problem(source, "reference", inputs)).first)
    (candidate,) = propose(graph)
    x, w = draw([(17, 19), (19, 74)])
    for number in (0.25, -1.5):
        gate, up = (x.double() @ w.double()).chunk(2, -1)
        got = CHECK.interpreted(candidate, x, w, number, **SMALL)
        CHECK.assert_accurate(got, (gate * number).relu() * up, 32)


LARGE = [
    (GATED, "", {"x": (4, 2048, 4096), "a": (11008, 4096), "b": (11008, 4096)}),
    ("F.gelu(x @ a) * (x @ b)", "", {"x": (8192, 4096), "a": (4096, 11008), "b": (4096, 11008)}),
    (GATED, "", {"x": (16, 4096), "a": (14336, 4096), "b": (14336, 4096)}),
    (GATED, "", {"x": (1009, 4099), "a": (11003, 4099), "b": (11003, 4099)}),
    ("F.silu(g) * u", "g, u = F.linear(x, w).chunk(2, -1)",
     {"x": (4096, 2048), "w": (16384, 2048)}),
    ("F.silu(g) * u", "g, u = F.linear(x, w, c).chunk(2, -1)",
     {"x": (1, 4096), "w": (8192, 4096), "c": (8192,)}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("body", "before", "shapes"), LARGE)
def test_defaults_compile_for_sm_90(traced, body, before, shapes, dtype):
    (candidate,) = propose(traced(body, before, dtype, **shapes)[0])
    given = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes.values()]
    for kernel in CHECK.compiled(candidate, given):
        used = from_tools(kernel, named("sm_90"))
        assert not used.limits_exceeded
        assert used.spill_bytes is not None and used.spill_bytes <= 64
        few = shapes["x"][0] in (1, 16)
        assert ("mma.sync" if few else "wgmma") in kernel.asm["ptx"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_choice_of_a_tile_compiles(traced, dtype):
    body, before, shapes = LARGE[0]
    (candidate,) = propose(traced(body, before, dtype, **shapes)[0])
    given = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes.values()]
    for end in (0, -1):
        values = {name: knob.choices[end] for name, knob in candidate.knobs.items()}
        assert CHECK.compiled(candidate, given, **values)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_mlp_compiles_for_sm_90(traced, dtype):
    shapes = {"x": (4096, 2048), "a": (8192, 2048), "b": (8192, 2048), "d": (2048, 8192)}
    graph, _ = traced(f"F.linear({GATED}, d)", dtype=dtype, **shapes)
    candidate = next(iter(FAMILIES[-1].propose(graph, CHECK.TARGET)))
    given = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes.values()]
    for kernel in CHECK.compiled(candidate, given):
        used = from_tools(kernel, named("sm_90"))
        assert not used.limits_exceeded
        assert used.spill_bytes is not None and used.spill_bytes <= 64
