"""Cross-entropy in CUDA C++: results of an emulator against float64, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.cross_entropy import CrossEntropy

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
TRITON = SimpleNamespace(**runpy.run_path(str(HERE.with_name("test_cross_entropy.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})


def kernel_of(body, rows, classes, dtype="float32"):
    (kernel,) = CrossEntropy().propose(TRITON.graph_of(body, rows, classes, dtype), CUDA)
    return kernel


def result(kernel, x, t, reduction, **knobs):
    shape = x.shape[:1] if reduction == "none" else ()
    (got,) = RUN(kernel, [(shape, x.dtype)], {"x": x, "t": t}, **knobs)
    return got


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("rows", "classes", "dtype", "knobs"), [
    (5, 1, "float32", {}),
    (13, 37, "bfloat16", {}),
    (3, 1000, "float16", {"LANES": 64, "ROWS": 2}),
    (2, 3001, "float32", {"LANES": 128, "ROWS": 1, "UNROLL": 2}),
])  # fmt: skip
def test_results_are_those_of_float64(reduction, rows, classes, dtype, knobs):
    kernel = kernel_of(f"F.cross_entropy(x, t, reduction={reduction!r})", rows, classes, dtype)
    x, t = TRITON.arguments(rows, classes, getattr(torch, dtype))
    t[1] = -100
    exact = F.cross_entropy(x.double(), t, reduction=reduction)
    CHECK.assert_accurate(result(kernel, x, t, reduction, **knobs), exact, 4)


def test_more_blocks_than_the_last_one_has_threads():
    kernel = kernel_of("F.cross_entropy(x, t)", 2200, 3)
    x, t = TRITON.arguments(2200, 3)
    exact = F.cross_entropy(x.double(), t)
    CHECK.assert_accurate(result(kernel, x, t, "mean", LANES=32, ROWS=1), exact, 4)


def test_an_ignored_class_does_not_count():
    kernel = kernel_of("F.nll_loss(F.log_softmax(x, -1), t, ignore_index=3)", 9, 5)
    x, t = TRITON.arguments(9, 5)
    t[:4] = 3
    exact = F.cross_entropy(x.double(), t, ignore_index=3)
    CHECK.assert_accurate(result(kernel, x, t, "mean"), exact, 4)
    assert result(kernel, x, torch.full((9,), 3), "mean").isnan()


def test_infinities_and_nan():
    kernel = kernel_of("F.cross_entropy(x, t, reduction='none')", 6, 3000)
    x, t = TRITON.arguments(6, 3000)
    x[0, 7], x[1, 8], x[2, :1100], x[3] = (
        float("nan"), float("inf"), float("-inf"), float("-inf"))  # fmt: skip
    t[:], x[4, 2999] = 2999, float("-inf")
    exact = F.cross_entropy(x.double(), t, reduction="none")
    CHECK.assert_accurate(result(kernel, x, t, "none"), exact)


def test_logits_far_from_zero_lose_nothing():
    """Two equal classes: log 2, however large both are."""
    kernel = kernel_of("F.cross_entropy(x, t, reduction='none')", 2, 3000, "float16")
    x, t = torch.full((2, 3000), -100.0, dtype=torch.float16), torch.tensor([7, 2999])
    x[:, 7] = x[:, 2999] = 49984.0
    exact = F.cross_entropy(x.double(), t, reduction="none")
    CHECK.assert_accurate(result(kernel, x, t, "none"), exact, 1)


def test_a_label_that_is_no_class_has_no_loss():
    kernel = kernel_of("F.cross_entropy(x, t, reduction='none')", 4, 6)
    x, t = TRITON.arguments(4, 6)
    t[0], t[1] = 6, -1
    assert result(kernel, x, t, "none").isnan().tolist() == [True, True, False, False]


@pytest.mark.parametrize(("rows", "classes", "dtype", "architecture"), [
    (32768, 4096, "float32", "sm_90"),
    (4096, 32000, "float16", "sm_100"),
    (64, 128257, "bfloat16", "sm_80"),
    (65536, 10, "float32", "sm_90"),
])  # fmt: skip
def test_kernels_compile(tmp_path, rows, classes, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    for reduction in ("mean", "none"):
        body = f"F.cross_entropy(x, t, reduction={reduction!r})"
        kernel = kernel_of(body, rows, classes, dtype)
        options = [f"-D{name}={value}" for name, value in kernel.chosen.items()]
        compile_cubin(toolchain, kernel.source, architecture, options, [], tmp_path)
        assert (tmp_path / CUBIN).stat().st_size > 1000


@pytest.mark.parametrize("body", ["F.cross_entropy(x, t, weight=x[0])", "F.log_softmax(x, 1)"])
def test_what_is_no_cross_entropy_alone_has_none(body):
    assert list(CrossEntropy().propose(TRITON.graph_of(body), CUDA)) == []
