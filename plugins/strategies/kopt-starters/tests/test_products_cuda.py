"""The CUDA C++ kernel of matrix times vector: matched, compiled, and run by an emulator."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.model.kernel_file import header_of
from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.products import Products

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
RUN = runpy.run_path(str(Path(__file__).with_name("cuda_on_cpu.py")))["run"]


@pytest.fixture
def kernels(graph_of):
    """Return the CUDA kernels for an expression over arguments of these shapes."""

    def made(expression: str, *shapes: tuple[int, ...], dtype: str = "float32"):
        named = dict(zip("abcd", shapes, strict=False))
        source = f"def reference({', '.join(named)}):\n    return {expression}\n"
        return list(Products().propose(graph_of(source, dtype=dtype, **named), CUDA))

    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "units", "knobs"), [
    (7, 1, {"ROWS": 4, "THREADS": 64}),
    (5, 132, {"ROWS": 2, "THREADS": 64, "PARTS": 3}),
])  # fmt: skip
def test_what_the_kernels_compute(graph_of, dtype, rows, units, knobs):
    depth = 8 * 1024 + 16
    source = "def reference(a, b):\n    return torch.mv(a, b)\n"
    device = CHECK.GPU.model_copy(update={"units": units})
    shapes = {"a": (rows if units > 1 else 64, depth), "b": (depth,)}
    graph = graph_of(source, dtype=dtype, **shapes)
    (candidate,) = Products().propose(graph, CUDA.model_copy(update={"device": device}))
    assert ("PARTS" in candidate.knobs) == ("PARTS" in knobs)
    generator = torch.Generator().manual_seed(3)
    kind = getattr(torch, dtype)
    matrix = torch.randn(rows, depth, generator=generator).to(kind)
    vector = torch.randn(depth, generator=generator).to(kind)
    (got,) = RUN(candidate, [((rows,), kind)], {"a": matrix, "b": vector}, **knobs)
    CHECK.assert_accurate(
        got, matrix.double() @ vector.double(), 16 if kind is torch.float32 else 2
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(2048, 1 << 20), (1 << 20, 64)])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_the_kernels_compile(kernels, tmp_path, dtype, shape, architecture):
    (candidate,) = kernels("a @ b", shape, (shape[1], 1), dtype=dtype)
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    options = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
    compile_cubin(toolchain, candidate.source, architecture, options, [], tmp_path)
    assert (tmp_path / CUBIN).stat().st_size > 1000


def test_which_products_have_such_a_kernel(kernels):
    (found,) = kernels("a @ b", (2048, 1 << 20), (1 << 20, 1), dtype="float16")
    header = header_of(found.source)
    assert header["requires"] == ["a.shape[1] % 8 == 0"]
    assert [launch["kernel"] for launch in header["launch"]] == ["strips", "add_parts"]
    (many,) = kernels("b @ a.T", (1 << 16, 512), (512,))
    (launch,) = header_of(many.source)["launch"]
    assert json.dumps(launch["arguments"][:3]) == '["a", "b", "out"]'


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("a @ b", ((64, 63), (63, 1))),
        ("a.T @ b", ((64, 64), (64, 1))),
        ("a @ b", ((3, 64, 64), (3, 64, 1))),
        ("F.linear(a, b, c)", ((64, 64), (1, 64), (1,))),
        ("torch.relu(a @ b)", ((64, 64), (64, 1))),
        ("torch.diag(a) @ b", ((64,), (64, 1))),
    ],
)
def test_other_products_have_none(kernels, expression, shapes):
    assert kernels(expression, *shapes) == []
