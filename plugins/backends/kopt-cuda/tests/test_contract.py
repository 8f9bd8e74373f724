"""The CUDA backend keeps the contract of backends; what runs kernels needs a GPU."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kopt.errors import CandidateError
from kopt.model.device import Device
from kopt.model.verification import Status
from kopt.testing import BackendContract
from kopt.testing.arrays import Array
from kopt.testing.bench import CandidateBench
from kopt_cuda import CudaBackend
from kopt_cuda.toolchain import find_toolchain

_HEADER = """\
// /// kopt
// entry = "kernel"
// [knobs]
// BLOCK = [64, 128]
// [[launch]]
// grid = ["cdiv({vector}.numel, BLOCK)"]
// block = ["BLOCK"]
// arguments = [{arguments}]
// ///
extern "C" __global__ void kernel({parameters}, long long n) {{
    long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) {{ {body} }}
}}
"""


def source(arguments: str, parameters: str, body: str) -> str:
    quoted = ", ".join(f'"{argument}"' for argument in arguments.split())
    vector = arguments.split()[0]
    return _HEADER.format(vector=vector, arguments=quoted, parameters=parameters, body=body)


class OnThisGpu(BackendContract):
    """Asked for the GPU that is here, or for the one of the records."""

    language = "cuda"
    device = "cuda"

    def on(self) -> Device:
        found = super().on()
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            major, minor = torch.cuda.get_device_capability()
            found = found.model_copy(update={"architecture": f"sm_{major}{minor}"})
        return found

    def plugin(self) -> CudaBackend:
        return CudaBackend(CudaBackend.Options())


@pytest.mark.skipif(find_toolchain() is None, reason="no compiler for CUDA C++ here")
class TestCudaBackend(OnThisGpu):
    caches = True
    add = source(
        "x y out x.numel", "const float* x, const float* y, float* out", "out[i] = x[i] + y[i];"
    )
    two_outputs = source(
        "x y out0 out1 x.shape[0]",
        "const float* x, const float* y, float* sum, float* difference",
        "sum[i] = x[i] + y[i]; difference[i] = x[i] - y[i];",
    )
    integers = source("n out n.numel", "const int* x, int* out", "out[i] = 2 * x[i] + 1;")
    in_place = source("x y x.numel", "float* x, const float* y", "x[i] += y[i];")
    scaled = source(
        "x factor out x.numel", "const float* x, float factor, float* out",
        "out[i] = x[i] * factor;",
    )  # fmt: skip
    constant = source(
        "x out x.numel", "const float* x, float* out",
        "constexpr float factor = 2.5f; out[i] = x[i] * factor;",
    )  # fmt: skip
    endless = source(
        "x out x.numel", "const float* x, volatile float* out",
        "out[i] = 1; while (out[i] > 0) {} out[i] = x[i];",
    )  # fmt: skip
    broken = add.replace("x[i] + y[i]", "x[i] + missing[i]")
    complaint: ClassVar[str] = r"kernel\.cu:\d+: error: .*missing"

    @pytest.fixture(autouse=True)
    def _cupy_is_there(self) -> None:
        pytest.importorskip("cupy")


_LAUNCHER = """\
# /// kopt
# language = "cuda"
# entry = "run"
# [knobs]
# BLOCK = [64, 128]
# ///
import cupy
import numpy
import torch

SOURCE = '''
extern "C" __global__ void kernel({parameters}, long long n) {{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}
'''
KERNEL = cupy.RawModule(code=SOURCE).get_function("kernel")


def run({takes}, BLOCK):
    size = {vector}.numel()
    {before}
    KERNEL((-(-size // BLOCK),), (BLOCK,), ({arguments}, numpy.int64(size)))
    {after}
"""


def launcher(takes: str, pointers: str, parameters: str, body: str, made: str = "out") -> str:
    vector, names = takes.split(",")[0], [name for name in made.split() if name]
    arguments = [f"{name}.data_ptr()" for name in pointers.split()]
    if "factor" in takes:
        arguments.insert(1, "numpy.float32(factor)")
    return _LAUNCHER.format(
        takes=takes, vector=vector, parameters=parameters, body=body,
        arguments=", ".join(arguments),
        before="; ".join(f"{name} = torch.empty_like({vector})" for name in names) or "pass",
        after=f"return {', '.join(names) or None}",
    )  # fmt: skip


@pytest.mark.gpu
class TestPythonForm(OnThisGpu):
    add = launcher(
        "x, y, *", "x y out", "const float* x, const float* y, float* out", "out[i] = x[i] + y[i];"
    )
    two_outputs = launcher(
        "x, y, *", "x y sum apart",
        "const float* x, const float* y, float* sum, float* apart",
        "sum[i] = x[i] + y[i]; apart[i] = x[i] - y[i];", "sum apart",
    )  # fmt: skip
    integers = launcher("n, *", "n out", "const int* x, int* out", "out[i] = 2 * x[i] + 1;")
    in_place = launcher("x, y, *", "x y", "float* x, const float* y", "x[i] += y[i];", "")
    scaled = launcher(
        "x, *, factor", "x out", "const float* x, float factor, float* out",
        "out[i] = x[i] * factor;",
    )  # fmt: skip
    constant = launcher(
        "x, *", "x out", "const float* x, float* out",
        "constexpr float factor = 2.5f; out[i] = x[i] * factor;",
    )  # fmt: skip
    endless = launcher(
        "x, *", "x out", "const float* x, volatile float* out",
        "out[i] = 1; while (out[i] > 0) {} out[i] = x[i];",
    )  # fmt: skip
    comment = "#"
    broken = add.replace("x[i] + y[i]", "x[i] + missing[i]")
    complaint: ClassVar[str] = r"kernel\.py:\d+: error: .*missing"

    def test_an_illegal_access_has_its_name(self, bench: CandidateBench) -> None:
        """It costs its process, and the next kernel runs in a new one."""
        source = self.add.replace("out[i] =", "out[i + (1ll << 40)] =")
        vector = Array(tuple(float(i) for i in range(77)))
        with pytest.raises(CandidateError) as caught:
            bench.run(self.kernel(source), {"x": vector, "y": vector}, [Array.full(vector, 77)])
        assert caught.value.status is Status.ILLEGAL_ACCESS
        self.test_it_runs_on_shared_memory(bench)
