"""Cross-entropy in C++: compiled, and compared with float64 and with eager PyTorch."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.device import Target
from kopt.model.problem import InputSpec
from kopt.testing.problems import function_problem
from kopt_starters.families.cross_entropy_cpu import CrossEntropyCpu
from kopt_starters.graph import Graph

torch = pytest.importorskip("torch")
F = torch.nn.functional
CPP = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compiling.py"))))

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


def proposed(body, rows=32, classes=100, *, dtype="float32", language="cpp"):
    from kopt_torch.shapes import signature_by_shapes

    source = f"import torch\nimport torch.nn.functional as F\n\n\ndef reference(x, t):\n    return {body}\n"
    labels = InputSpec(
        name="t", shape=(rows,), dtype="int64", distribution="integers", low=0, high=classes
    )
    inputs = (InputSpec(name="x", shape=(rows, classes), dtype=dtype), labels)
    graph = Graph.of(signature_by_shapes(function_problem(source, "reference", inputs)).first)
    return list(CrossEntropyCpu().propose(graph, Target(language=language, device=CPP.CPU)))


def arguments(rows, classes):
    generator = torch.Generator().manual_seed(11)
    x = 5 * torch.randn(rows, classes, generator=generator)
    return x, torch.randint(0, classes, (rows,), generator=generator)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_results_are_as_exact_as_pytorchs(tmp_path, reduction):
    for rows, classes in [(5, 1), (7, 37), (129, 1009), (2, 30011)]:
        [candidate] = proposed(f"F.cross_entropy(x, t, reduction={reduction!r})", rows, classes)
        x, t = arguments(rows, classes)
        t[1] = -100
        own, exact = (F.cross_entropy(each, t, reduction=reduction) for each in (x, x.double()))
        for knobs in ({}, {"THREADS": 1, "VECTOR": 8, "UNROLL": 2}):
            got = CPP.built(tmp_path, candidate, **knobs)(torch.full_like(own, 77), x=x, t=t)
            CPP.assert_as_exact(got, own, exact)


def test_infinities_and_nan_are_pytorchs(tmp_path):
    x, t = arguments(6, 37)
    x[0, 3], x[1, 4], x[2, 5] = float("nan"), float("inf"), float("-inf")
    x[3], x[4, t[4]] = float("-inf"), float("-inf")
    [candidate] = proposed("F.cross_entropy(x, t, reduction='none')", 6, 37)
    own = F.cross_entropy(x, t, reduction="none")
    got = CPP.built(tmp_path, candidate)(torch.full_like(own, 77), x=x, t=t)
    torch.testing.assert_close(got, own, equal_nan=True)


def test_nothing_is_read_for_a_class_that_is_not_there(tmp_path):
    [candidate] = proposed("F.cross_entropy(x, t, reduction='none')", 2, 3)
    x, t = torch.randn(2, 3), torch.tensor([1 << 40, 1])
    got = CPP.built(tmp_path, candidate)(torch.empty(2), x=x, t=t)
    assert got[0].isnan() and got[1].isfinite()


@pytest.mark.parametrize("body", ["F.cross_entropy(x, t, label_smoothing=0.1)", "F.log_softmax(x, 1)",
                                  "F.cross_entropy(x, t) * 2"])  # fmt: skip
def test_what_it_does_not_know_it_leaves(body):
    assert proposed(body) == []


def test_other_languages_and_dtypes_are_left_to_others():
    assert proposed("F.cross_entropy(x, t)", language="triton") == []
    assert proposed("F.cross_entropy(x, t)", dtype="float16") == []
