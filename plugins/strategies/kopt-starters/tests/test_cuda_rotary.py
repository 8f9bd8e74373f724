"""Rotary embeddings in CUDA C++: results of an emulator against float64, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.errors import CandidateError
from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.rotary import Rotary

HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
TRITON = SimpleNamespace(**runpy.run_path(str(HERE.with_name("test_rotary.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
TURNED = "h = x.shape[-1] // 2; r = torch.cat((-x[..., h:], x[..., :h]), -1); return x * c + r * s"


def kernels(graph):
    return list(Rotary().propose(graph, CUDA))


def check(kernel, text, given, **knobs):
    exact = TRITON.run(text, *(each.double() for each in given.values()))
    exact = exact if isinstance(exact, tuple) else (exact,)
    kind = given["x"].dtype
    results = RUN(kernel, [(each.shape, kind) for each in exact], given, **knobs)
    for one, of_it in zip(results, exact, strict=True):
        CHECK.assert_accurate(one, of_it, 2)


def drawn(dtype, **shapes):
    generator = torch.Generator().manual_seed(5)
    kind = getattr(torch, dtype)
    return {n: torch.randn(shape, generator=generator).to(kind) for n, shape in shapes.items()}


@pytest.mark.parametrize(("form", "dtype"), [
    *((form, "float32") for form in TRITON.FORMS),
    ("halves, turned", "float16"), ("neighbours, unbound", "bfloat16"),
    ("neighbours, turned", "float16"),
])  # fmt: skip
def test_results_are_those_of_float64(graph_of, form, dtype):
    body, table = TRITON.FORMS[form]
    text = TRITON.source(body)
    shapes = {"x": TRITON.X, "c": table, "s": table}
    (kernel,) = kernels(graph_of(text, dtype=dtype, **shapes))
    check(kernel, text, drawn(dtype, **shapes), THREADS=64)


@pytest.mark.parametrize(("width", "dtype"), [(2, "float32"), (14, "bfloat16"), (20, "float16")])
def test_rows_of_odd_widths(graph_of, width, dtype):
    text = TRITON.source(TURNED)
    shapes = {"x": (3, 5, width), "c": (5, width), "s": (5, width)}
    (kernel,) = kernels(graph_of(text, dtype=dtype, **shapes))
    check(kernel, text, drawn(dtype, **shapes), THREADS=32, STREAM=1)


def test_two_results(graph_of):
    turn = "torch.cat((-{0}[..., 5:], {0}[..., :5]), -1)"
    body = f"return x * c + {turn.format('x')} * s, y * c + {turn.format('y')} * s"
    text = TRITON.source(body, "x, y, c, s")
    shapes = {"x": (2, 7, 4, 10), "y": (2, 7, 2, 10), "c": (7, 1, 10), "s": (7, 1, 10)}
    (kernel,) = kernels(graph_of(text, **shapes))
    check(kernel, text, drawn("float32", **shapes))


def test_other_extents_are_right_or_refused(graph_of):
    body, table = TRITON.FORMS["halves, turned"]
    text = TRITON.source(body)
    (kernel,) = kernels(graph_of(text, x=TRITON.X, c=table, s=table))
    check(kernel, text, drawn("float32", x=(1, 5, 3, 16), c=(3, 16), s=(3, 16)))
    for wrong in ({"c": (4, 16)}, {"x": (1, 5, 3, 8)}, {"s": (3, 1, 16)}):
        given = drawn("float32", **{"x": (1, 5, 3, 16), "c": (3, 16), "s": (3, 16), **wrong})
        with pytest.raises(CandidateError, match="requires"):
            RUN(kernel, [(given["x"].shape, torch.float32)], given)


def test_other_graphs_have_none(graph_of):
    shapes = {"x": (2, 4, 16), "c": (4, 16), "s": (4, 16)}
    assert kernels(graph_of(TRITON.source("return x * c + x * s"), **shapes)) == []
    renamed = TRITON.source(TURNED.replace("x", "out"), "out, c, s")
    assert kernels(graph_of(renamed, **{"out": shapes.pop("x"), **shapes})) == []


@pytest.mark.parametrize("form", ["halves, turned", "neighbours, strided", "neighbours, turned"])
@pytest.mark.parametrize(
    ("dtype", "architecture"), [("float16", "sm_90"), ("bfloat16", "sm_80"), ("float32", "sm_100")]
)
def test_kernels_compile(graph_of, tmp_path, form, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    body = TRITON.FORMS[form][0]
    table = (4096, 128 if "turned" in form else 64)
    (kernel,) = kernels(
        graph_of(TRITON.source(body), dtype=dtype, x=(2, 32, 4096, 128), c=table, s=table)
    )
    options = [f"-D{name}={value}" for name, value in kernel.chosen.items()]
    compile_cubin(toolchain, kernel.source, architecture, options, [], tmp_path)
    assert (tmp_path / CUBIN).stat().st_size > 1000
