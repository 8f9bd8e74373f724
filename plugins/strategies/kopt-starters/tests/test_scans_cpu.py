"""Scans in C++: compiled, and compared with float64 and with eager PyTorch."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.device import Target
from kopt.model.problem import InputSpec
from kopt.testing.problems import function_problem
from kopt_starters.families.scans_cpu import ScansCpu
from kopt_starters.graph import Graph

torch = pytest.importorskip("torch")
CPP = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compiling.py"))))

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

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
SHAPES = [((3, 1009), 1), ((7, 1), -1), ((2, 13, 333), 1), ((1009, 3), 0), ((2, 65537), 1)]
KNOBS = [{}, {"THREADS": 1, "VECTOR": 8, "STREAM": 1}, {"THREADS": 3, "VECTOR": 16, "STREAM": 0}]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile a candidate; return its function of arguments by name."""
    folder = tmp_path_factory.mktemp("built")
    return lambda candidate, **values: CPP.built(folder, candidate, **values)


def proposed(form, shape, dim, *, dtype="float32", language="cpp"):
    from kopt_torch.shapes import signature_by_shapes

    body = FORMS.get(form, form).format(d=dim)
    names = "x, m" if re.search(r"\bm\b", body) else "x"
    source = f"import torch\n\n\ndef reference({names}):\n    return {body}\n"
    inputs = [InputSpec(name="x", shape=shape, dtype=dtype)]
    if "m" in names:
        mask = InputSpec(name="m", shape=shape, dtype="bool", distribution="bernoulli", high=0.5)
        inputs.append(mask)
    problem = function_problem(source, "reference", tuple(inputs))
    graph = Graph.of(signature_by_shapes(problem).first)
    return list(ScansCpu().propose(graph, Target(language=language, device=CPP.CPU)))


def function_of(form, dim):
    body = FORMS[form].format(d=dim).replace("\n", "")
    return eval(f"lambda x, m=None: {body}", {"torch": torch})


def arguments(form, shape):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(shape, generator=generator)
    if "product" in form:
        x = x.sign() * (1 + x / 400)
    given = {"x": x}
    if "masked" in form:
        given["m"] = torch.rand(shape, generator=generator) < 0.5
    return given


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_results_are_as_exact_as_pytorchs(build, form, shape, dim):
    if form == "exclusive" and shape[dim] == 1:
        pytest.skip("nothing is before the only element")
    given, function = arguments(form, shape), function_of(form, dim)
    own = function(**given)
    exact = function(**{**given, "x": given["x"].double()})
    found = proposed(form, shape, dim)
    assert len(found) == (2 if shape == (2, 65537) and "product" not in form else 1)
    for candidate in found:
        for knobs in KNOBS if shape[0] < 4 else KNOBS[:1]:
            got = build(candidate, **knobs)(torch.full_like(own, 77), **given)
            CPP.assert_as_exact(got, own, exact)


@pytest.mark.parametrize("shape", [(3, 300), (2, 20000), (3, 300, 5)])
@pytest.mark.parametrize("form", ["sum", "reverse", "product", "exclusive"])
def test_nan_and_infinity_go_on(build, form, shape):
    x = torch.randn(shape)
    x[0, 100], x[1, 50], x[-1, 70], x[-1, 200] = (
        float("nan"), float("inf"), float("inf"), float("-inf"))  # fmt: skip
    own = function_of(form, 1)(x)
    for candidate in proposed(form, shape, 1):
        got = build(candidate)(torch.full_like(own, 77), x=x)
        torch.testing.assert_close(got, own, equal_nan=True)


def test_a_long_product_of_small_and_large_factors_stays(build):
    x = torch.tensor([1e-3, 1e3]).repeat(20000)[None]
    for candidate in proposed("product", tuple(x.shape), 1):
        got = build(candidate)(torch.empty_like(x), x=x)
        torch.testing.assert_close(got, x.cumprod(1))


def test_few_long_rows_are_shared_by_the_threads(build):
    ideas = [candidate.idea for candidate in proposed("sum", (2, 1 << 20), 1)]
    assert "shared" in ideas[0] and "shared" not in ideas[1]
    [other] = proposed("sum", (512, 4096), 1)
    x = torch.randn(3, 77)
    torch.testing.assert_close(build(other)(torch.empty_like(x), x=x), x.cumsum(1))


@pytest.mark.parametrize("body", ["torch.cumsum(x, 1) + 1", "torch.cummax(x, 1)[0]",
                                  "torch.cumsum(x, 1, dtype=torch.float64)", "x.sum(1)"])  # fmt: skip
def test_what_it_does_not_know_it_leaves(body):
    assert proposed(body, (5, 9), 1) == []


def test_other_languages_and_dtypes_are_left_to_others():
    assert proposed("sum", (5, 9), 1, language="triton") == []
    assert proposed("sum", (5, 9), 1, dtype="float16") == []
