"""Pooling in C++: compiled, and compared with float64 and with eager PyTorch."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.device import Target
from kopt_starters.families.pooling_cpu import PoolingCpu

torch = pytest.importorskip("torch")
F = torch.nn.functional
CPP = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compiling.py"))))

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

CASES = {
    "F.max_pool1d(x, 8, stride=1, padding=4, dilation=3)": (1, 3, 1729),
    "F.max_pool1d(x, 3)": (5, 11),
    "F.avg_pool1d(x, 8, stride=1, padding=4)": (1, 3, 72),
    "F.avg_pool1d(x, 2, stride=5)": (2, 1, 2003),
    "F.max_pool2d(x, 4, stride=1, padding=1)": (1, 2, 10, 37),
    "F.max_pool2d(x, (2, 3), stride=(3, 2), padding=(1, 0), dilation=(2, 1), ceil_mode=True)": (
        2, 3, 12, 24),
    "F.max_pool2d(x, 3, stride=2, padding=1)": (2, 7, 8),
    "F.max_pool2d(x, 1)": (2, 1, 1),
    "F.avg_pool2d(x, 11)": (1, 2, 23, 264),
    "F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)": (2, 2, 8, 10),
    "F.avg_pool2d(x, (3, 4), stride=(1, 3), padding=(1, 2), count_include_pad=False)": (2, 2, 7, 19),
    "F.avg_pool2d(x, 2, divisor_override=3)": (2, 1, 6, 10),
    "F.max_pool3d(x, 3, stride=2, padding=1, dilation=3)": (1, 2, 8, 9, 10),
    "F.avg_pool3d(x, 3, stride=2, padding=1)": (1, 1, 5, 6, 33),
    "F.avg_pool3d(x, 2, stride=1, padding=1, count_include_pad=False, ceil_mode=True)": (
        1, 2, 3, 4, 5),
}  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile a candidate; return its function of arguments by name."""
    folder = tmp_path_factory.mktemp("built")
    return lambda candidate, **values: CPP.built(folder, candidate, **values)


def proposed(graph_of, body, shape, *, language="cpp", dtype="float32"):
    graph = graph_of(f"def reference(x): return {body}", dtype=dtype, x=shape)
    return list(PoolingCpu().propose(graph, Target(language=language, device=CPP.CPU)))


def reference(body):
    return eval(f"lambda x: {body}", {"F": F, "torch": torch})


@pytest.mark.parametrize("body", CASES)
def test_results_are_as_exact_as_pytorchs(graph_of, build, body):
    shape = CASES[body]
    [candidate] = proposed(graph_of, body, shape)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)) + 0.5
    own, exact = reference(body)(x), reference(body)(x.double())
    for knobs in ({}, {"THREADS": 1, "VECTOR": 8, "BLOCK": 64}):
        got = build(candidate, **knobs)(torch.full_like(own, 77), x=x)
        CPP.assert_as_exact(got, own, exact)


@pytest.mark.parametrize("body", ["F.max_pool2d(x, 3, 2, 1)", "F.avg_pool2d(x, 3, 1, 1)"])
def test_nan_wins_and_infinities_stay(graph_of, build, body):
    x = torch.randn(1, 2, 9, 20)
    x[0, 0, 4, 5], x[0, 1, 2, 3], x[0, 0, 0, 0] = float("nan"), float("inf"), float("nan")
    x[0, 1, 5:] = float("-inf")
    own = reference(body)(x)
    [candidate] = proposed(graph_of, body, x.shape)
    got = build(candidate)(torch.full_like(own, 77), x=x)
    torch.testing.assert_close(got, own, equal_nan=True)


def test_other_shapes_are_pooled(graph_of, build):
    body, x = "F.avg_pool2d(x, 3, 2)", torch.randn(1, 5, 7, 31)
    [candidate] = proposed(graph_of, body, (2, 3, 20, 20))
    own = reference(body)(x)
    CPP.assert_as_exact(
        build(candidate)(torch.empty_like(own), x=x), own, reference(body)(x.double())
    )


@pytest.mark.parametrize("body", ["F.max_pool2d(x, 2, return_indices=True)[1]", "F.max_pool2d(x, 2) + 1",
                                  "F.avg_pool1d(x[0], 80)", "F.max_pool1d(x[0], 1, stride=100)"])  # fmt: skip
def test_what_it_does_not_know_it_leaves(graph_of, body):
    assert proposed(graph_of, body, (2, 3, 8, 128)) == []


def test_other_languages_and_dtypes_are_left_to_others(graph_of):
    body, shape = "F.max_pool2d(x, 2)", (2, 3, 8, 8)
    assert proposed(graph_of, body, shape, language="triton") == []
    assert proposed(graph_of, body, shape, dtype="float16") == []
