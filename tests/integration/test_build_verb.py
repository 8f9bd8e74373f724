"""``kopt build`` as a user has it: real processes, and the compilers that are here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROBLEM = """
[reference]
function = "double"

[inputs.x]
shape = ["n"]

[[workloads]]
n = 4096
"""
CPP = """
// /// kopt
// arguments = ["x", "out", "x.numel"]
// [knobs]
// FACTOR = [2, 3]
// ///
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = FACTOR * x[i];
}
"""
CUDA = """
// /// kopt
// grid = ["cdiv(x.numel, 256)"]
// block = 256
// shared = 0
// arguments = ["x", "out", "x.numel"]
// ///
extern "C" __global__ void twice(const float *x, float *y, int n) {
    int at = blockIdx.x * 256 + threadIdx.x;
    if (at < n) y[at] = 2 * x[at];
}
"""
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def kernel_function(x):
    y = torch.empty_like(x)
    twice[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
TARGETS = ("sm_80", "sm_90", "sm_100")
Kopt = Callable[..., "subprocess.CompletedProcess[str]"]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
needs_cuda = pytest.mark.skipif(
    find_spec("cupy") is None and shutil.which("nvcc") is None, reason="needs NVRTC or nvcc"
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a problem and kernels."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "double").mkdir()
    (folder / "double" / "problem.toml").write_text(PROBLEM)
    (folder / "double" / "reference.py").write_text("def double(x):\n    return 2 * x\n")
    kernels = {
        "k.cpp": CPP, "k.cu": CUDA, "k.py": TRITON,
        "broken.cpp": CPP.replace("y[i] =", "y[i] = ) "),
        "large.cu": CUDA.replace("shared = 0", "shared = 200000"),
    }  # fmt: skip
    for name, source in kernels.items():
        (folder / name).write_text(source)
    return folder


@pytest.fixture(scope="module")
def kopt(home: Path) -> Kopt:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KOPT_")}
    environment = {**kept, "KOPT_CACHE_DIR": str(home / "cache"), "COLUMNS": "80"}

    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kopt", "build", "double", *arguments], cwd=home,
            env={**environment, **variables}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return call


def for_targets(*targets: str) -> list[str]:
    return [word for target in targets for word in ("--target", target)]


@pytest.mark.parametrize(
    "kernel",
    [pytest.param("k.py", marks=needs_triton), pytest.param("k.cu", marks=needs_cuda)],
)
def test_a_row_for_each_target(kopt: Kopt, kernel: str) -> None:
    done = kopt(kernel, *for_targets(*TARGETS))
    assert done.returncode == 0, done.stderr
    _, *rows = (line.split() for line in done.stdout.splitlines())
    assert "building a kernel of double for sm_80, sm_90, sm_100" in done.stderr
    assert [(row[0], row[1]) for row in rows] == [("twice", target) for target in TARGETS]
    assert all(int(row[2]) >= 8 and row[3] == "0" and row[5] == "within" for row in rows)


@needs_cuda
def test_without_a_target_it_is_the_gpu_that_nvidia_smi_lists(kopt: Kopt, tmp_path: Path) -> None:
    pytest.importorskip("cupy")  # where a GPU is listed, it is what would load the kernels
    listing = tmp_path / "nvidia-smi"
    listing.write_text('#!/bin/sh\ncase "$1" in *compute_cap) echo 8.6;; *) echo GPU;; esac\n')
    listing.chmod(0o755)
    done = kopt("k.cu", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:2] == ["twice", "sm_86"]


@pytest.mark.parametrize(
    ("kernel", "kind", "said"),
    [
        pytest.param("k.py", "ptx", ".entry twice(", marks=needs_triton),
        pytest.param("k.py", "sass", "EXIT", marks=needs_triton),
        pytest.param("k.cu", "ptx", ".entry twice(", marks=needs_cuda),
    ],
)
def test_a_listing_is_alone_on_stdout(kopt: Kopt, kernel: str, kind: str, said: str) -> None:
    done = kopt(kernel, "--target", "sm_90", "--dump", kind)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "REGISTERS" not in done.stdout and "REGISTERS" in done.stderr
    assert done.stdout.startswith("// ")


@needs_cuda
def test_what_exceeds_one_target_is_shown_and_fails(kopt: Kopt) -> None:
    done = kopt("large.cu", *for_targets("sm_80", "sm_90"))
    assert done.returncode == 1
    _, small, large, said = done.stdout.splitlines()
    assert "shared memory: 200000 of 166912 bytes" in small
    assert large.split()[-1] == "within"
    assert said.startswith("sm_80: compile-error: kernel.cu:")
    data = json.loads(kopt("large.cu", *for_targets("sm_80", "sm_90"), "--json").stdout)
    assert [target["status"] for target in data["targets"]] == ["compile-error", None]
    assert data["targets"][1]["kernels"][0]["shared_bytes"] == 200000


def test_cpp_is_built_for_this_machine(home: Path, kopt: Kopt) -> None:
    done = kopt("k.cpp", "--knob", "FACTOR=3", "--dump", "asm", "--output", "k.s", "--json")
    assert done.returncode == 0, done.stderr
    assert "asm k.s" in done.stderr
    data = json.loads(done.stdout)
    (target,) = data["targets"]
    assert (data["knobs"], target["target"], target["listings"]) == ({"FACTOR": 3}, "native", {})
    assert target["build"]["resources"]["text_bytes"] > 0
    assert "twice:" in (home / "k.s").read_text()
    table = kopt("k.cpp").stdout.splitlines()
    assert table[0].split()[:6] == ["TARGET", "BACKEND", "LIBRARY", "B", "TEXT", "B"]
    assert table[1].split()[:2] == ["native", "cpp"]


@needs_triton
def test_knobs_that_a_kernel_does_not_declare_are_found(kopt: Kopt) -> None:
    done = kopt("k.py", "--knob", "num_warps=8", "--target", "sm_90", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["knobs"]["num_warps"] == 8
    assert data["targets"][0]["kernels"][0]["num_warps"] == 8
    assert json.loads(kopt("k.py", "--target", "sm_90", "--json").stdout)["knobs"] == {}
    refused = kopt("k.py", "--knob", "TILE=8", "--target", "sm_90")
    assert refused.returncode == 4
    assert "no such knob; the kernel's knobs: " in refused.stderr and "num_warps" in refused.stderr


def test_a_compile_error_fails_with_the_compilers_words(kopt: Kopt) -> None:
    done = kopt("broken.cpp")
    assert done.returncode == 1
    assert "native: compile-error:" in done.stdout and "kernel.cpp:9:" in done.stdout


@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        ("k.cpp", ["--dump", "ptx"], "the cpp backend has no listing 'ptx'; it has asm"),
        pytest.param(
            "k.py", ["--target", "sm_90", "--dump", "asm"],
            "the triton backend has no listing 'asm'; it has ptx and sass", marks=needs_triton,
        ),
        pytest.param("k.cu", ["--target", "sm_42"], "name one of", marks=needs_cuda),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_an_error_of_usage(
    kopt: Kopt, kernel: str, options: list[str], said: str
) -> None:
    done = kopt(kernel, *options)
    assert (done.returncode, done.stdout) == (4, "")
    assert said in done.stderr
