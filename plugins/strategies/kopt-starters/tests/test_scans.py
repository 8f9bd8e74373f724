"""Scans: what is recognised, results against float64, and what compiles for sm_90."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.problem import InputSpec
from kopt.testing.problems import function_problem
from kopt_starters.families.scans import Scans
from kopt_starters.graph import Graph

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

EXCLUSIVE = """torch.cat((torch.zeros_like(x.select({d}, 0).unsqueeze({d})),
    torch.cumsum(x.narrow({d}, 0, x.size({d}) - 1), {d})), {d})"""
FORMS = {
    "sum": "torch.cumsum(x, {d})",
    "product": "torch.cumprod(x, {d})",
    "reverse": "torch.cumsum(x.flip({d}), {d}).flip({d})",
    "exclusive": EXCLUSIVE,
    "masked": "torch.cumsum(x * m, {d})",
    "masked reverse": "torch.cumsum((m * x).flip({d}), {d}).flip({d})",
    "reverse product": "torch.cumprod(x.flip({d}), {d}).flip({d})",
}
SHAPES = [((3, 300), 1), ((2, 37), -1), ((2, 13, 33), 1)]


def graph_of(body, shape, dtype="float32", mask="bool"):
    from kopt_torch.shapes import signature_by_shapes

    names = "x, m" if re.search(r"\bm\b", body) else "x"
    source = f"import torch\n\n\ndef reference({names}):\n    return {body}\n"
    inputs = [InputSpec(name="x", shape=shape, dtype=dtype)]
    if "m" in names:
        inputs.append(
            InputSpec(name="m", shape=shape, dtype=mask, distribution="bernoulli", high=0.5)
        )
    problem = function_problem(source, "reference", tuple(inputs))
    return Graph.of(signature_by_shapes(problem).first)


def propose(graph):
    return list(Scans().propose(graph, CHECK.TARGET))


def kernels(form, shape, dim, dtype="float32"):
    """The kernels for a shape, and those that only large ones get."""
    body = FORMS[form].format(d=dim)
    found = propose(graph_of(body, shape, dtype))
    if len(shape) == 2 and dim % 2 == 1:
        found += propose(graph_of(body, (3, 65536), dtype))
    return {candidate.idea: candidate for candidate in found}.values()


def arguments(form, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(shape, generator=generator)
    if "product" in form:
        x = x.sign() * (1 + x / 40)
    mask = torch.rand(shape, generator=generator) < 0.5
    return [x.to(dtype), mask] if "masked" in form else [x.to(dtype)]


def exact(form, dim, given):
    body = FORMS[form].format(d=dim).replace("\n", "")
    return eval(f"lambda x, m=None: {body}", {"torch": torch})(given[0].double(), *given[1:])


@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_float64(form):
    for shape, dim in SHAPES:
        given = arguments(form, shape)
        wanted = exact(form, dim, given)
        candidates = kernels(form, shape, dim)
        assert candidates
        for candidate in candidates:
            small = {"ROWS": 4, "BLOCK": 128, "PIECES": 8}
            small = {name: value for name, value in small.items() if name in candidate.knobs}
            CHECK.assert_accurate(CHECK.interpreted(candidate, *given, **small), wanted, 64)


def test_float16_and_other_layouts():
    x = torch.randn(700, 3).half().t()
    for candidate in kernels("sum", (3, 700), 1, "float16"):
        got = CHECK.interpreted(candidate, x)
        assert got.dtype == torch.float16
        CHECK.assert_accurate(got, x.double().cumsum(1), 2)


@pytest.mark.parametrize("form", ["sum", "reverse"])
def test_nan_and_infinity_go_on(form):
    x = torch.randn(3, 300)
    x[0, 100], x[1, 50], x[2, 70], x[2, 200] = (
        float("nan"), float("inf"), float("inf"), float("-inf"))  # fmt: skip
    for candidate in kernels(form, (3, 300), 1):
        got = CHECK.interpreted(candidate, x, BLOCK=128)
        CHECK.assert_accurate(got, exact(form, 1, [x]), 64)


@pytest.mark.parametrize("form", ["reverse", "masked reverse", "reverse product"])
@pytest.mark.parametrize("cols", [5, 8, 300])
def test_from_the_end_in_groups_or_one_by_one(form, cols):
    given = arguments(form, (3, cols))
    wanted = exact(form, 1, given)
    for candidate in kernels(form, (3, cols), 1):
        for group in (1, 4, 8) if "GROUP" in candidate.knobs else ():
            got = CHECK.interpreted(candidate, *given, BLOCK=16, GROUP=group)
            CHECK.assert_accurate(got, wanted, 64)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cols", [129, 300, 511])
def test_rows_that_begin_anywhere_are_read_from_before(form, cols):
    given = arguments(form, (9, cols))
    wanted = exact(form, 1, given)
    for candidate in kernels(form, (9, cols), 1):
        for block in (32, 128) if "GROUP" in candidate.knobs else ():
            got = CHECK.interpreted(candidate, *given, BLOCK=block, ROWS=1)
            CHECK.assert_accurate(got, wanted, 64)


@pytest.mark.parametrize("form", ["sum", "reverse", "masked"])
def test_rows_of_odd_lengths_are_read_16_bytes_at_a_time(form):
    given = [torch.empty(4097, 32767, device="meta")]
    if form == "masked":
        given.append(torch.empty(4097, 32767, dtype=torch.bool, device="meta"))
    (candidate,) = propose(graph_of(FORMS[form].format(d=1), given[0].shape))
    (kernel,) = CHECK.compiled(candidate, given)
    assert "ld.global.v4" in kernel.asm["ptx"] and "st.global.v4" in kernel.asm["ptx"]


def test_from_the_end_a_thread_reads_16_bytes_and_shuffles_no_more_than_from_the_start():
    x = torch.empty(32768, 32768, dtype=torch.bfloat16, device="meta")
    shuffles = []
    for form in ("sum", "reverse"):
        (candidate,) = propose(graph_of(FORMS[form].format(d=1), x.shape, "bfloat16"))
        (kernel,) = CHECK.compiled(candidate, [x])
        assert "ld.global.v4" in kernel.asm["ptx"] and "ld.global.b16" not in kernel.asm["ptx"]
        assert "st.global.v4" in kernel.asm["ptx"]
        shuffles.append(kernel.asm["ptx"].count("shfl."))
    assert shuffles[1] == shuffles[0]


def test_few_long_rows_are_split():
    assert [next(iter(k.knobs)) for k in propose(graph_of("x.cumsum(1)", (4, 1 << 20)))] == [
        "PIECES", "ROWS"]  # fmt: skip
    assert [next(iter(k.knobs)) for k in propose(graph_of("x.cumsum(1)", (32768, 32768)))] == [
        "ROWS"
    ]


@pytest.mark.parametrize(
    "body",
    [
        "torch.cumsum(x.flip(1), 1)",
        "torch.cumsum(x.flip(0), 1).flip(0)",
        "torch.cumsum(x.flip(1), 1).flip(0)",
        "torch.cat((torch.ones_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)",
        "torch.cat((torch.cumsum(x[:, :-1], 1), torch.zeros_like(x[:, :1])), 1)",
        "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, 1:], 1)), 1)",
        "torch.cat((torch.zeros_like(x[:, :1]), torch.cumprod(x[:, :-1], 1)), 1)",
        "torch.cumsum(x, 1).cumsum(1)",
        "torch.cumsum(x, 1, dtype=torch.float64)",
        "torch.cumsum(x * x, 1)",
        "torch.cumsum(x, 1) + 1",
        "torch.cummax(x, 1)[0]",
        "x.sum(1)",
    ],
)
def test_what_is_no_scan_alone(body):
    assert propose(graph_of(body, (8, 8))) == []


def test_a_mask_has_to_be_of_bools_and_of_the_shape():
    assert propose(graph_of("torch.cumsum(x * m, 1)", (8, 8), mask="float32")) == []
    assert propose(graph_of("torch.cumsum(x * m[0], 1)", (8, 8))) == []


def test_another_shape_is_right_and_another_rank_refused():
    for candidate in kernels("sum", (3, 700), 1):
        x = torch.randn(5, 91)
        CHECK.assert_accurate(CHECK.interpreted(candidate, x), x.double().cumsum(1), 32)
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, x[None])


LARGE = [
    ("sum", (32768, 32768), 1, "float32"),
    ("product", (32768, 32768), 1, "bfloat16"),
    ("masked reverse", (32768, 32768), 1, "float16"),
    ("exclusive", (4, 1 << 24), 1, "float32"),
    ("reverse product", (64, 4096, 1024), 1, "bfloat16"),
]


@pytest.mark.parametrize(("form", "shape", "dim", "dtype"), LARGE)
def test_kernels_compile_for_sm_90(form, shape, dim, dtype):
    graph = graph_of(FORMS[form].format(d=dim), shape, dtype)
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    given = [x, x.to(torch.bool)] if "masked" in form else [x]
    candidates = propose(graph)
    assert candidates
    for candidate in candidates:
        assert CHECK.compiled(candidate, given)
