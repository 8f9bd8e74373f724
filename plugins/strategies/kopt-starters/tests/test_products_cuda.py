"""The CUDA C++ kernel of matrix times vector: matched, compiled for sm_90, and run by CPU threads."""

from __future__ import annotations

import ctypes
import json
import runpy
import shutil
import subprocess
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
# What the kernels use of CUDA, for one block at a time: a CPU thread for each of its threads.
BLOCK_ON_A_CPU = r"""
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static
struct uint4 { unsigned x, y, z, w; };
struct Three { unsigned x, y, z; };
thread_local Three threadIdx, blockIdx, gridDim;
static std::unique_ptr<std::barrier<>> everyone;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
static float exchanged[1024];
template <class T> T __ldg(const T *at) { return *at; }
template <class T> T __ldcs(const T *at) { return *at; }
inline void __syncthreads() { everyone->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float value, int mask) {
    exchanged[threadIdx.x] = value;
    warps[threadIdx.x / 32]->arrive_and_wait();
    const float other = exchanged[threadIdx.x ^ mask];
    warps[threadIdx.x / 32]->arrive_and_wait();
    return other;
}
template <class Kernel> void launch(unsigned across, unsigned down, unsigned threads, Kernel kernel) {
    everyone = std::make_unique<std::barrier<>>(threads);
    warps.clear();
    for (unsigned warp = 0; warp < threads / 32; ++warp)
        warps.push_back(std::make_unique<std::barrier<>>(32));
    for (unsigned block = 0; block < across * down; ++block) {
        std::vector<std::thread> running;
        for (unsigned thread = 0; thread < threads; ++thread)
            running.emplace_back([=] {
                threadIdx = {thread, 0, 0};
                blockIdx = {block % across, block / across, 0};
                gridDim = {across, down, 1};
                kernel();
            });
        for (auto &each : running) each.join();
    }
}
"""
SINGLE = """
extern "C" void product(const float *a, const float *x, float *out, float *, long long rows, long long pieces) {
    launch((rows + ROWS - 1) / ROWS, 1, THREADS, [=] {
        strips((const uint4 *)a, (const uint4 *)x, out, rows, pieces); });
}
"""
SHARED = """
extern "C" void product(const float *a, const float *x, float *out, float *partial, long long rows, long long pieces) {
    launch((rows + ROWS - 1) / ROWS, PARTS, THREADS, [=] {
        strips((const uint4 *)a, (const uint4 *)x, partial, rows, pieces); });
    launch((rows + 255) / 256, 1, 256, [=] { add_parts(partial, out, rows, PARTS); });
}
"""


@pytest.fixture
def kernels(graph_of):
    """Return the CUDA kernels for an expression over arguments of these shapes."""

    def made(expression: str, *shapes: tuple[int, ...], dtype: str = "float32"):
        named = dict(zip("abcd", shapes, strict=False))
        source = f"def reference({', '.join(named)}):\n    return {expression}\n"
        return list(Products().propose(graph_of(source, dtype=dtype, **named), CUDA))

    return made


def run_on_a_cpu(candidate, matrix, vector, folder: Path, **knobs: int):
    """Return what a float32 candidate computes, its threads being a CPU's."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    values = {**candidate.chosen, **knobs}
    (folder / "kernel.cpp").write_text(
        BLOCK_ON_A_CPU + candidate.source + (SHARED if "PARTS" in values else SINGLE)
    )
    library = folder / "kernel.so"
    defined = [f"-D{name}={value}" for name, value in values.items()]
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-w", *defined,
         str(folder / "kernel.cpp"), "-o", str(library)],
        check=True,
    )  # fmt: skip
    rows, depth = matrix.shape
    out = torch.full((rows,), float("nan"))
    partial = torch.full((rows * values.get("PARTS", 1),), float("nan"))
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (matrix, vector, out, partial)]
    sizes = [ctypes.c_longlong(rows), ctypes.c_longlong(depth // 4)]
    ctypes.CDLL(str(library)).product(*pointers, *sizes)
    return out


@pytest.mark.parametrize(("rows", "units", "knobs"), [
    (7, 1, {"ROWS": 4, "THREADS": 64}),
    (5, 132, {"ROWS": 2, "THREADS": 64, "PARTS": 3}),
])  # fmt: skip
def test_what_the_kernels_compute(graph_of, tmp_path, rows, units, knobs):
    depth = 8 * 1024 + 12
    source = "def reference(a, b):\n    return torch.mv(a, b)\n"
    device = CHECK.GPU.model_copy(update={"units": units})
    graph = graph_of(source, a=(rows if units > 1 else 64, depth), b=(depth,))
    (candidate,) = Products().propose(graph, CUDA.model_copy(update={"device": device}))
    assert ("PARTS" in candidate.knobs) == ("PARTS" in knobs)
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(rows, depth, generator=generator)
    vector = torch.randn(depth, generator=generator)
    got = run_on_a_cpu(candidate, matrix, vector, tmp_path, **knobs)
    CHECK.assert_accurate(got, matrix.double() @ vector.double(), 16)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(2048, 1 << 20), (1 << 20, 64)])
def test_the_kernels_compile_for_sm_90(kernels, tmp_path, dtype, shape):
    (candidate,) = kernels("a @ b", shape, (shape[1], 1), dtype=dtype)
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    options = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
    compile_cubin(toolchain, candidate.source, "sm_90", options, [], tmp_path)
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
        ("a @ b", ((64, 64), (64, 64))),
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
