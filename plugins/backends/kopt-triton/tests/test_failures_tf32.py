"""Inaccurate products of float32 blocks: the verdict says what tl.dot does by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Problem
from kopt.model.verification import Status, Verification
from kopt.testing.problems import function_problem
from kopt.testing.trials import BACKENDS, Trials

pytest.importorskip("triton")
Verify = pytest.importorskip("kopt_verify").Verify

SOURCE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)
    place = at[:, None] * N + at[None, :]
    x = {rounded}(tl.load(a + place))
    y = {rounded}(tl.load(b + place))
    tl.store(c + place, {dot})


@triton.jit
def narrow(x):
    return x.to(tl.float16).to({dtype})


@triton.jit
def same(x):
    return x


def kernel_function(a, b):
    c = torch.empty_like(a)
    product_kernel[(1,)](a, b, c, N=64)
    return c
"""


def product(dtype: str) -> Problem:
    """Return the problem of a product of two square matrices."""
    spec = {"shape": (64, 64), "dtype": dtype}
    source = "import torch\n\n\ndef product(a, b):\n    return a @ b\n"
    inputs = (InputSpec(name="a", **spec), InputSpec(name="b", **spec))
    return function_problem(source, "product", inputs)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trials]]:
    cache = tmp_path_factory.mktemp("builds")
    backends = (*BACKENDS, ("backend", "kopt-triton:triton", {}))
    opened = {
        dtype: Trials(product(dtype), cache, backends=backends, purpose="triton")
        for dtype in ("float32", "float64")
    }
    yield opened
    for each in opened.values():
        each.close()


def verdict(trials: dict[str, Trials], dot: str, dtype: str = "float32", rounded: str = "narrow"):
    source = SOURCE.format(dot=dot, dtype=f"tl.{dtype}", rounded=rounded)
    trial = trials[dtype].of(parse_kernel(source, "triton"))
    found = Verify(Verify.Options()).kopt_verify(trial)
    assert isinstance(found, Verification)
    return found


def evidence(found: Verification) -> str:
    (stage,) = (stage for stage in found.stages if stage.outcome == "fail")
    assert (found.status, stage.stage) == (Status.WRONG, "accuracy")
    return stage.evidence


@pytest.mark.parametrize("dot", ["tl.dot(x, y)", "tl.dot(x, y, tl.zeros((N, N), tl.float32))"])
def test_an_inaccurate_product_without_a_precision_names_its_line(trials, dot):
    said = evidence(verdict(trials, dot))
    assert "line 12: tl.dot of float32 defaults to TF32" in said
    assert "input_precision='ieee'" in said


@pytest.mark.parametrize(
    "dot",
    ["tl.dot(x, y, input_precision='ieee')", "tl.dot(x, y, None, 'ieee')", "tl.sum(x, 1)[:, None] * y"],
)  # fmt: skip
def test_what_says_its_precision_or_does_not_multiply_is_not_suspected(trials, dot):
    assert "TF32" not in evidence(verdict(trials, dot))


def test_another_dtype_is_not_suspected(trials):
    assert "TF32" not in evidence(verdict(trials, "tl.dot(x, y)", "float64"))


def test_an_accurate_product_passes(trials):
    """The interpreter computes in float32 proper; on a GPU the default would not pass."""
    assert verdict(trials, "tl.dot(x, y)", rounded="same").status is Status.CORRECT
