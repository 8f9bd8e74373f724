"""Which foreign functions a built library asks for, read from real libraries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt_cpp import CppBackend
from kopt_cpp.symbols import foreign_symbols, undefined_symbols

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

CLEAN = """#include <cmath>
#include <cstdint>
#include <vector>
extern "C" void f(const float* x, float* out, int64_t n) {
    std::vector<float> kept(x, x + n);
#pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(kept[i]) + std::lgamma(x[i]);
}
"""
BLAS = """extern "C" __attribute__((weak)) void cblas_sgemm(int);
extern "C" __attribute__((weak)) void dgemm_(int);
extern "C" void f() { if (cblas_sgemm) cblas_sgemm(1); if (dgemm_) dgemm_(1); }
"""
LOADER = """#include <dlfcn.h>
#include <cstdlib>
extern "C" void f() { void* h = dlopen(0, RTLD_NOW); if (h) dlsym(h, "x"); std::system("true"); }
"""
ATEN = """namespace at { struct T; __attribute__((weak)) int add(int); }
extern "C" __attribute__((weak)) int PyRun_SimpleString(const char*);
extern "C" int f() { return at::add(1) + PyRun_SimpleString(""); }
"""


def build(source: str, folder: Path, *flags: str) -> bytes:
    (folder / "k.cpp").write_text(source)
    command = ["g++", "-shared", "-fPIC", "-O2", "-fopenmp", *flags, "k.cpp", "-o", "k.so"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "k.so").read_bytes()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CLEAN, ()),
        (BLAS, ("cblas_sgemm", "dgemm_")),
        (LOADER, ("dlopen", "dlsym", "system")),
        (ATEN, ("PyRun_SimpleString", "_ZN2at3addEi")),
    ],
)
@pytest.mark.parametrize("flags", [(), ("-s",), ("-Wl,--hash-style=sysv",), ("-fno-plt",)])
def test_foreign_symbols(tmp_path, source, expected, flags):
    assert foreign_symbols(build(source, tmp_path, *flags)) == expected


def test_all_that_is_undefined_is_read(tmp_path):
    names = undefined_symbols(build(CLEAN, tmp_path))
    assert any(name.startswith("GOMP_parallel") for name in names)
    assert {"lgammaf", "tanhf"} & set(names)
    assert "f" not in names


def test_a_library_without_section_headers_is_read(tmp_path):
    content = bytearray(build(BLAS, tmp_path))
    content[40:48] = bytes(8)  # where they are
    content[60:62] = bytes(2)  # how many
    assert foreign_symbols(bytes(content)) == ("cblas_sgemm", "dgemm_")


@pytest.mark.parametrize("content", [b"", b"\xcf\xfa\xed\xfe" + bytes(100)])
def test_other_formats_say_nothing(content):
    assert undefined_symbols(content) == ()


def test_an_executable_says_so_itself(tmp_path):
    context = WorkerContext(records.cpu(), "native", ("x",), BuildCache(tmp_path))
    source = f'// /// kopt\n// entry = "f"\n// ///\n{LOADER}'
    backend = CppBackend(CppBackend.Options(compiler="g++"))
    executable = backend.kopt_build(None, parse_kernel(source, "cpp"), context)
    assert executable.origin(None).symbols == ("dlopen", "dlsym", "system")
