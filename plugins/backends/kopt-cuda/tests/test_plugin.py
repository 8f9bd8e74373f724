"""The plugin as kopt sees it: light to import, rows for the doctor, other languages left alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt_cuda import CudaBackend, checks, toolchain

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")


def test_importing_and_making_it_imports_no_torch_and_no_cupy():
    code = (
        "import sys, kopt_cuda; kopt_cuda.CudaBackend(kopt_cuda.CudaBackend.Options())\n"
        "print(sorted({'torch', 'cupy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_it_is_found_by_its_entry_point():
    (found,) = entry_points(group="kopt.backend", name="cuda")
    assert found.load() is CudaBackend


def test_another_language_is_left_to_others():
    candidate = parse_kernel('extern "C" void f() {}', "cpp")
    assert CudaBackend(CudaBackend.Options()).kopt_build(None, candidate, None) is None


def test_checks_have_a_next_step():
    rows = list(CudaBackend(CudaBackend.Options()).kopt_check())
    assert rows[0].name == "cuda compiler"
    assert all(row.fix for row in rows if row.state != "ok")


def test_without_a_compiler_the_doctor_and_the_build_say_how_to_get_one(monkeypatch, tmp_path):
    options = CudaBackend.Options(compiler=str(tmp_path / "nvcc-of-nowhere"))
    (row,) = CudaBackend(options).kopt_check()
    assert (row.state, "kopt-cuda[cuda12]" in row.fix) == ("fail", True)


def test_a_path_of_a_compiler_is_taken_and_nothing_else(tmp_path):
    other = tmp_path / "nvcc"
    other.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.7, V13.7.1'\n")
    other.chmod(0o755)
    found = toolchain.find_toolchain(str(other))
    assert (found.kind, found.version, found.path) == ("nvcc", "13.7", str(other))


def test_missing_cuda_headers_are_a_warning(monkeypatch):
    made = toolchain.Toolchain(
        kind="nvrtc", path="", version="12.9", detail="NVRTC 12.9", includes=("/c/_cccl/cub",)
    )
    monkeypatch.setattr(checks, "find_toolchain", lambda wanted: made)
    row = next(iter(CudaBackend(CudaBackend.Options()).kopt_check()))
    assert (row.state, "cuda_fp16.h" in row.detail) == ("warn", True)


def test_without_a_gpu_and_a_target_the_next_step_is_said(build):
    with pytest.raises(
        CandidateError, match=r"machine with an NVIDIA GPU only; .* add --target sm_90"
    ) as caught:
        build(SCALE, "native")
    assert caught.value.status is Status.UNSUPPORTED
