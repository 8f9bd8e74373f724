"""The CUDA backend keeps the contract of backends; what runs kernels needs a GPU."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kopt.model.device import Device
from kopt.testing import BackendContract
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


@pytest.mark.skipif(find_toolchain() is None, reason="no compiler for CUDA C++ here")
class TestCudaBackend(BackendContract):
    language = "cuda"
    device = "cuda"
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

    def on(self) -> Device:
        found = super().on()
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            major, minor = torch.cuda.get_device_capability()
            found = found.model_copy(update={"architecture": f"sm_{major}{minor}"})
        return found

    def plugin(self) -> CudaBackend:
        return CudaBackend(CudaBackend.Options())

    @pytest.fixture(autouse=True)
    def _cupy_is_there(self) -> None:
        pytest.importorskip("cupy")
