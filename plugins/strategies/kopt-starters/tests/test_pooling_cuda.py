"""Pooling in CUDA C++: an emulator's results against float64, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("kopt_cuda")

import torch

from kopt.errors import CandidateError
from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.pooling import Pooling

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
CASES = {
    "F.max_pool2d(x, 4, stride=1, padding=1)": (1, 3, 19, 37),
    "F.max_pool2d(x, (2, 3), stride=(3, 2), padding=(1, 0), dilation=(2, 1), ceil_mode=True)": (
        2, 3, 12, 25),
    "F.max_pool2d(x, 3, stride=2, padding=1)": (2, 7, 8),
    "F.avg_pool2d(x, 11)": (1, 2, 23, 65),
    "F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)": (2, 2, 8, 11),
    "F.avg_pool2d(x, (3, 4), stride=(1, 3), padding=(1, 2), count_include_pad=False)": (2, 2, 7, 19),
    "F.avg_pool2d(x, 2, divisor_override=3)": (2, 1, 6, 10),
}  # fmt: skip


def kernels(graph):
    return list(Pooling().propose(graph, CUDA))


def graph_for(graph_of, body, shape, dtype="float32"):
    return graph_of(f"def reference(x): return {body}", dtype=dtype, x=shape)


def check(kernel, body, x, **knobs):
    exact = eval(body, {"F": F, "x": x.double()})
    (got,) = RUN(kernel, [(exact.shape, x.dtype)], {"x": x}, **knobs)
    CHECK.assert_accurate(got, exact, 4)


@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_float64(graph_of, body):
    shape = CASES[body]
    (kernel,) = kernels(graph_for(graph_of, body, shape))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    check(kernel, body, x)
    check(kernel, body, x, ROWS=2, THREADS=32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_pooled_by_its_largest_alone(graph_of, dtype):
    body, shape = next(iter(CASES.items()))
    (kernel,) = kernels(graph_for(graph_of, body, shape, dtype))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    check(kernel, body, x)
    assert not kernels(graph_for(graph_of, "F.avg_pool2d(x, 3)", shape, dtype))


def test_nan_wins_and_infinities_stay(graph_of):
    (kernel,) = kernels(graph_for(graph_of, "F.max_pool2d(x, 3, 2, 1)", (1, 2, 9, 21)))
    x = torch.randn(1, 2, 9, 21)
    x[0, 0, 4, 5], x[0, 1, 2, 3] = float("nan"), float("inf")
    x[0, 1, 5:] = float("-inf")
    exact = F.max_pool2d(x, 3, 2, 1)
    (got,) = RUN(kernel, [(exact.shape, x.dtype)], {"x": x})
    assert torch.equal(got.nan_to_num(7), exact.nan_to_num(7))


def test_rows_of_other_lengths_are_refused(graph_of):
    (kernel,) = kernels(graph_for(graph_of, "F.max_pool2d(x, 3)", (2, 3, 9, 21)))
    check(kernel, "F.max_pool2d(x, 3)", torch.randn(5, 1, 9, 21))
    with pytest.raises(CandidateError, match=r"x.shape\[-1\] == 21"):
        check(kernel, "F.max_pool2d(x, 3)", torch.randn(2, 3, 9, 22))


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("F.max_pool3d(x, 3)", (2, 3, 9, 9, 9)),
        ("F.max_pool1d(x, 3)", (2, 3, 900)),
        ("F.max_pool2d(x, 3)", (1, 1, 9, 40000)),
        ("F.max_pool2d(x, 40)", (1, 1, 90, 90)),
    ],
)
def test_nothing_for_other_dimensions_and_what_does_not_fit(graph_of, body, shape):
    assert not kernels(graph_for(graph_of, body, shape))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("dtype", "body"), [
    ("float32", "F.max_pool2d(x, 4, stride=1, padding=1)"), ("bfloat16", "F.max_pool2d(x, 3, 2)"),
    ("float32", "F.avg_pool2d(x, 11)"),
])  # fmt: skip
def test_every_choice_compiles(graph_of, tmp_path, architecture, dtype, body):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no CUDA compiler")
    (kernel,) = kernels(graph_for(graph_of, body, (8, 64, 512, 511), dtype))
    choices = {name: max(knob.choices) for name, knob in kernel.knobs.items()}
    for chosen in (kernel.chosen, choices):
        options = [f"-D{name}={value}" for name, value in chosen.items()]
        compile_cubin(toolchain, kernel.source, architecture, options, [], tmp_path)
        assert (tmp_path / CUBIN).stat().st_size > 1000
