"""Float32 products in halves in CUDA C++: an emulator's results against float64, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("kopt_cuda")

import torch

from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.products import ProductsInHalves

HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
CASES = {
    "a @ b": {"a": (150, 70), "b": (70, 130)},
    "a.T @ b": {"a": (64, 136), "b": (64, 40)},
    "a @ b.T": {"a": (33, 129), "b": (67, 129)},
    "torch.nn.functional.linear(a, b, c)": {"a": (40, 100), "b": (72, 100), "c": (72,)},
    "torch.bmm(a, b)": {"a": (2, 20, 65), "b": (2, 65, 36)},
    "torch.matmul(a, b)": {"a": (2, 130, 64), "b": (64, 21)},
}


def exact(expression, given):
    wide = {name: each.double() for name, each in given.items()}
    return eval(expression, {"torch": torch, **wide})


def drawn(shapes, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def halved(graph_of, monkeypatch):
    """Return what multiplies in halves however small a product is."""
    monkeypatch.setattr("kopt_starters.products.halves_cuda.halving_pays", lambda sizes: True)

    def made(expression, shapes):
        text = f"def reference({', '.join(shapes)}): return {expression}"
        (found,) = ProductsInHalves().propose(graph_of(text, **shapes), CUDA)
        return found

    return made


def check(kernel, expression, given, units=4, **knobs):
    want = exact(expression, given)
    (got,) = RUN(kernel, [(want.shape, torch.float32)], given, **knobs)
    CHECK.assert_accurate(got, want, units)


@pytest.mark.parametrize("expression", CASES)
def test_results_are_those_of_float64(halved, expression):
    kernel = halved(expression, CASES[expression])
    check(kernel, expression, drawn(CASES[expression]))


def test_wider_tiles_and_sums_over_several_rounds_of_slots(halved):
    shapes = {"a": (20, 500), "b": (500, 200)}
    check(halved("a @ b", shapes), "a @ b", drawn(shapes), BLOCK_N=192, GROUP=2)


def test_rows_of_tiles_that_no_group_is_full_of(halved):
    shapes = {"a": (600, 40), "b": (40, 150)}
    check(halved("a @ b", shapes), "a @ b", drawn(shapes), GROUP=2)


@pytest.mark.parametrize("power", [-70, -40, 40, 50])
def test_rows_of_any_magnitude(halved, power):
    shapes = {"a": (40, 70), "b": (70, 30)}
    given = drawn(shapes)
    given["a"] *= 2.0**power
    check(halved("a @ b", shapes), "a @ b", given)


@pytest.mark.parametrize("kind", ["spread", "infinite", "nan", "zeros", "few small"])
def test_what_a_float16_has_no_range_for(halved, kind):
    """The other kernel computes it: small numbers beside large ones that meet zeros count in full."""
    shapes = {"a": (40, 130), "b": (130, 30)}
    given = drawn(shapes)
    if kind == "spread":
        given["a"][:, ::2] *= 2.0**-30
        given["a"][:, 1::2] *= 2.0**10
        given["b"][1::2] = 0
    elif kind == "few small":
        given["a"][:, 5:9] *= 2.0**-30
    elif kind == "zeros":
        given["a"][3] = 0
        given["b"][:, 64:] = 0
    else:
        given["a"][3, 7] = float("inf") if kind == "infinite" else float("nan")
    check(halved("a @ b", shapes), "a @ b", given)


@pytest.mark.parametrize("width", [128, 192])
@pytest.mark.parametrize("place", ["row", "column"])
def test_a_tile_without_halves_beside_others(halved, place, width):
    """Each decides for itself, so that the others stay as fast, and all have their biases."""
    shapes = {"a": (300, 70), "b": (250, 70), "c": (250,)}
    given = drawn(shapes)
    which, line = ("a", 290) if place == "row" else ("b", 240)
    given[which][line, ::2] *= 2.0**-30
    expression = "torch.nn.functional.linear(a, b, c)"
    check(halved(expression, shapes), expression, given, units=6, BLOCK_N=width)


def test_nothing_where_halving_does_not_pay_or_more_follows(graph_of):
    def proposed(text, shapes, dtype="float32", target=CUDA):
        return list(ProductsInHalves().propose(graph_of(text, dtype=dtype, **shapes), target))

    large = {"a": (4096, 512), "b": (512, 4096)}
    assert proposed("def reference(a, b): return a @ b", large)
    assert not proposed("def reference(a, b): return a @ b", {"a": (128, 512), "b": (512, 4096)})
    assert not proposed("def reference(a, b): return torch.relu(a @ b)", large)
    assert not proposed("def reference(a, b): return a @ b", large, dtype="float16")
    older = CUDA.model_copy(
        update={"device": CUDA.device.model_copy(update={"architecture": "sm_80"})}
    )
    assert not proposed("def reference(a, b): return a @ b", large, target=older)


@pytest.mark.parametrize("width", [128, 192])
def test_it_compiles_without_spills(halved, tmp_path, width):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no CUDA compiler")
    kernel = halved("torch.bmm(a, b)", {"a": (3, 2048, 1024), "b": (3, 1024, 2048)})
    options = [f"-D{name}={value}" for name, value in {**kernel.chosen, "BLOCK_N": width}.items()]
    compile_cubin(toolchain, kernel.source, "sm_90a", options, [], tmp_path)
    assert (tmp_path / CUBIN).stat().st_size > 1000
    log = (tmp_path / "build.log").read_text()
    assert log.count("0 bytes spill stores, 0 bytes spill loads") == 2
    assert "serialized" not in log  # wgmma's would wait for each other
