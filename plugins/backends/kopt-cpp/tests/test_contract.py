"""The C++ backend keeps the contract of backends."""

from __future__ import annotations

import shutil

import pytest

from kopt.testing import BackendContract
from kopt_cpp import CppBackend

_HEADER = """\
// /// kopt
// entry = "kernel"
// arguments = [{arguments}]
// [knobs]
// STEP = [1, 2, 4]
// ///
#include <cstdint>
extern "C" void kernel({parameters}) {{
#pragma omp parallel for
    for (int64_t start = 0; start < n; start += STEP)
        for (int64_t i = start; i < start + STEP && i < n; ++i) {{ {body} }}
}}
"""


def source(arguments: str, parameters: str, body: str) -> str:
    quoted = ", ".join(f'"{argument}"' for argument in arguments.split())
    return _HEADER.format(arguments=quoted, parameters=parameters, body=body)


class Kernels(BackendContract):
    language = "cpp"
    caches = True
    add = source(
        "x y out x.numel", "const float* x, const float* y, float* out, int64_t n",
        "out[i] = x[i] + y[i];",
    )  # fmt: skip
    two_outputs = source(
        "x y out0 out1 x.shape[0]",
        "const float* x, const float* y, float* sum, float* difference, int64_t n",
        "sum[i] = x[i] + y[i]; difference[i] = x[i] - y[i];",
    )
    integers = source(
        "n out n.numel", "const int32_t* x, int32_t* out, int64_t n", "out[i] = 2 * x[i] + 1;"
    )
    in_place = source("x y x.numel", "float* x, const float* y, int64_t n", "x[i] += y[i];")
    scaled = source(
        "x factor out x.numel", "const float* x, double factor, float* out, int64_t n",
        "out[i] = static_cast<float>(x[i] * factor);",
    )  # fmt: skip
    constant = source(
        "x out x.numel", "const float* x, float* out, int64_t n",
        "constexpr float factor = 2.5f; out[i] = x[i] * factor;",
    )  # fmt: skip
    endless = source(
        "x out x.numel", "const float* x, float* out, int64_t n",
        "for (volatile bool on = true; on;) {} out[i] = x[i];",
    )  # fmt: skip
    broken = add.replace("x[i] + y[i]", "x[i] + missing[i]")
    complaint = r"kernel\.cpp:\d+:\d+: error: .*missing"


class TestCppBackend(Kernels):
    def plugin(self) -> CppBackend:
        return CppBackend(CppBackend.Options())


@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on this machine")
class TestWithClang(Kernels):
    def plugin(self) -> CppBackend:
        return CppBackend(CppBackend.Options(compiler="clang++"))
