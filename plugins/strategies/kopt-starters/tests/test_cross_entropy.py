"""Cross-entropy: what is recognised, results against float64, and what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.problem import InputSpec
from kopt.testing.problems import function_problem
from kopt_starters.families.cross_entropy import CrossEntropy
from kopt_starters.graph import Graph

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))


def graph_of(body, rows=32, classes=100, dtype="float32"):
    from kopt_torch.shapes import signature_by_shapes

    source = f"import torch\nimport torch.nn.functional as F\n\n\ndef reference(x, t):\n    return {body}\n"
    inputs = (
        InputSpec(name="x", shape=(rows, classes), dtype=dtype),
        InputSpec(
            name="t", shape=(rows,), dtype="int64", distribution="integers", low=0, high=classes
        ),
    )
    return Graph.of(signature_by_shapes(function_problem(source, "reference", inputs)).first)


def propose(graph):
    return list(CrossEntropy().propose(graph, CHECK.TARGET))


def arguments(rows, classes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(11)
    x = 5 * torch.randn(rows, classes, generator=generator)
    return x.to(dtype), torch.randint(0, classes, (rows,), generator=generator)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("rows", "classes"), [(5, 1), (7, 37), (3, 1000), (2, 3001)])
def test_results_are_those_of_float64(reduction, rows, classes):
    (candidate,) = propose(
        graph_of(f"F.cross_entropy(x, t, reduction={reduction!r})", rows, classes)
    )
    x, t = arguments(rows, classes)
    t[1] = -100
    exact = F.cross_entropy(x.double(), t, reduction=reduction)
    choices = candidate.knobs["BLOCK"].choices
    for values in ({}, {"BLOCK": choices[0], "ROWS": 2}, {"BLOCK": 1024, "ROWS": 1}):
        CHECK.assert_accurate(CHECK.interpreted(candidate, x, t, **values), exact)


def test_an_ignored_class_does_not_count():
    (candidate,) = propose(graph_of("F.nll_loss(F.log_softmax(x, -1), t, ignore_index=3)", 9, 5))
    x, t = arguments(9, 5)
    t[:4] = 3
    CHECK.assert_accurate(
        CHECK.interpreted(candidate, x, t), F.cross_entropy(x.double(), t, ignore_index=3)
    )
    assert CHECK.interpreted(candidate, x, torch.full((9,), 3)).isnan()


@pytest.mark.parametrize("block", [1024, 4096])
def test_infinities_and_nan(block):
    (candidate,) = propose(graph_of("F.cross_entropy(x, t, reduction='none')", 5, 3000))
    x, t = arguments(5, 3000)
    x[0, 7], x[1, 8], x[2, :1100], x[3] = (
        float("nan"), float("inf"), float("-inf"), float("-inf"))  # fmt: skip
    t[:] = 2999
    exact = F.cross_entropy(x.double(), t, reduction="none")
    CHECK.assert_accurate(CHECK.interpreted(candidate, x, t, BLOCK=block, ROWS=2), exact)


def test_float16_and_other_layouts():
    (candidate,) = propose(graph_of("F.cross_entropy(x, t)", 6, 50, "float16"))
    x, t = arguments(6, 50, torch.float16)
    got = CHECK.interpreted(candidate, x.t().contiguous().t(), t)
    assert got.dtype == torch.float16
    CHECK.assert_accurate(got, F.cross_entropy(x.double(), t), 2)


@pytest.mark.parametrize(
    "body",
    [
        "F.cross_entropy(x, t, label_smoothing=0.1)",
        "F.cross_entropy(x, t, weight=x[0])",
        "F.cross_entropy(x, x)",
        "F.cross_entropy(x, t) * 2",
        "F.nll_loss(x, t)",
        "F.nll_loss(F.log_softmax(x, 0), t)",
        "F.nll_loss(F.log_softmax(x, 1, dtype=torch.float64), t)",
        "F.log_softmax(x, 1)",
    ],
)
def test_what_is_no_cross_entropy_alone(body):
    assert propose(graph_of(body)) == []


def test_other_arguments_are_refused():
    (candidate,) = propose(graph_of("F.cross_entropy(x, t)"))
    x, t = arguments(4, 6)
    CHECK.assert_accurate(CHECK.interpreted(candidate, x, t), F.cross_entropy(x.double(), t))
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, x, t[:2])


@pytest.mark.parametrize(
    ("rows", "classes", "dtype"),
    [
        (32768, 4096, "float32"),
        (4096, 32000, "float16"),
        (64, 128256, "bfloat16"),
        (65536, 10, "float32"),
    ],
)
def test_kernels_compile_for_sm_90(rows, classes, dtype):
    (candidate,) = propose(graph_of("F.cross_entropy(x, t)", rows, classes, dtype))
    x = torch.empty(rows, classes, dtype=getattr(torch, dtype), device="meta")
    t = torch.empty(rows, dtype=torch.int64, device="meta")
    assert len(CHECK.compiled(candidate, [x, t])) == 2
