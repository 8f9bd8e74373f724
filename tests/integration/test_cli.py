"""The command line as a user has it: real processes, the real compiler and the real clock."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kopt.model.kernel_file import load_kernel
from kopt.testing.caches import shared_cache

pytest.importorskip("torch")

REFERENCE = """
import torch


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
"""
PROBLEM = """
[reference]
function = "rms_norm"

[inputs.x]
shape = ["rows", "cols"]

[inputs.weight]
shape = ["cols"]

[[workloads]]
rows = {rows}
cols = {cols}
"""
CPP = """
// /// kopt
// arguments = ["x", "weight", "out", "x.shape[0]", "x.shape[1]"]
// ///
#include <cmath>
#include <cstdint>

extern "C" void rms_norm(const float* x, const float* w, float* y, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * cols;
        float sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += in[c] * in[c];
        const float scale = 1.0f / std::sqrt(sum / cols + 1e-6f);
        for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = in[c] * scale * w[c];
    }
}
"""
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, w, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < cols
    value = tl.load(x + row * cols + column, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value) / cols + 1e-6)
    weight = tl.load(w + column, mask=inside, other=0.0)
    tl.store(y + row * cols + column, value * scale * weight, mask=inside)


def kernel_function(x, weight):
    out = torch.empty_like(x)
    count, cols = x.shape
    rows[(count,)](x, weight, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out
"""
QUICK = ("--device", "cpu", "-o", "backend.torch.compile=false")
Kopt = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]  # they share a finished run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with problems and kernels."""
    folder = tmp_path_factory.mktemp("cli")
    for name, rows, cols in (("rms", 64, 64), ("large", 1024, 512)):
        (folder / name).mkdir()
        (folder / name / "problem.toml").write_text(PROBLEM.format(rows=rows, cols=cols))
        (folder / name / "reference.py").write_text(REFERENCE)
    kernels = {
        "right.cpp": CPP,
        "wrong.cpp": CPP.replace("1e-6f", "1e-1f"),
        "broken.cpp": CPP.replace("float sum = 0;", "float sum = ;"),
        "right.py": TRITON,
        "wrong.py": TRITON.replace("1e-6", "1e-1"),
    }
    for name, source in kernels.items():
        (folder / name).write_text(source)
    return folder


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KOPT_")}
    return {**kept, "KOPT_CACHE_DIR": str(shared_cache(home)), "COLUMNS": "80"}


@pytest.fixture(scope="module")
def kopt(home: Path) -> Kopt:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kopt", *arguments], cwd=home, env=environment(home),
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    return call


@pytest.fixture(scope="module")
def optimized(kopt: Kopt) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A finished run: the process and the object that it printed."""
    done = kopt("optimize", "rms", *QUICK, "--max-trials", "3", "--json", "--runs-dir", "finished")
    assert done.stdout.count("\n") == 1, done.stderr
    return done, json.loads(done.stdout)


def test_optimize_ends_with_one_json_object(
    optimized: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    done, data = optimized
    assert done.returncode == {"improved": 0, "not-improved": 1}[data["status"]]
    assert set(data["baselines"]) == {"eager", "eager-pooled"}
    assert all(baseline["latency_ms"] > 0 for baseline in data["baselines"].values())
    assert data["problem"]["name"] == "rms"
    assert data["device"]["kind"] == "cpu"
    best = data["best"]
    assert Path(best["source_path"]).is_file()
    kept = load_kernel(Path(best["source_path"]))
    assert kept.chosen == best["knobs"]  # what is kept is what was measured
    assert (best["backend"], len(best["id"])) == ("cpp", 16)
    for interval in best["speedup"].values():
        assert set(interval) == {"median", "low", "high"}
    assert set(best["speedup"]) == set(data["baselines"])
    assert set(data["verification"].values()) == {"pass"}
    assert data["trials"] == {"correct": 3}
    assert data["spend"]["trials"] == 3
    beaten = all(i["low"] > 1 + best["noise"] for i in best["speedup"].values())
    assert (data["status"] == "improved") == beaten


def test_progress_is_one_line_per_event_on_stderr(
    optimized: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    lines = optimized[0].stderr.splitlines()
    assert all(line.split("s ", 1)[0].strip().replace(".", "").isdigit() for line in lines)
    assert sum(line.split("s ", 1)[1].startswith("#") for line in lines) == 3
    assert "\x1b" not in optimized[0].stderr


def test_a_finished_run_is_shown_and_not_resumed(
    kopt: Kopt, optimized: tuple[subprocess.CompletedProcess[str], dict[str, Any]]
) -> None:
    _, data = optimized
    shown = json.loads(kopt("show", "last", "--runs-dir", "finished", "--json").stdout)
    assert [e["id"] for e in shown.pop("evaluations")].count(data["best"]["id"]) == 1
    assert shown.pop("accounts") is None  # no language model
    assert shown == data
    source = kopt(
        "show", data["run"], "--runs-dir", "finished", "--candidate", data["best"]["id"][:7]
    )
    assert Path(data["best"]["source_path"]).read_text().rstrip() in source.stdout
    again = kopt("resume", "last", "--runs-dir", "finished")
    assert (again.returncode, again.stdout) == (4, "")
    assert "has ended" in again.stderr


def test_ctrl_c_ends_a_run_that_resume_goes_on_with(home: Path, kopt: Kopt) -> None:
    arguments = ("optimize", "rms", *QUICK, "--max-trials", "6", "--runs-dir", "stopped")
    with subprocess.Popen(
        [sys.executable, "-m", "kopt", *arguments], cwd=home, env=environment(home),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "#1 " in line:
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    run = json.loads(kopt("show", "last", "--runs-dir", "stopped", "--json").stdout)
    assert run["status"] == "interrupted"
    assert f"kopt resume {run['run']}" in out
    done = sum(run["trials"].values())
    resumed = kopt("resume", "last", "--runs-dir", "stopped", "--json")
    data = json.loads(resumed.stdout)
    assert resumed.returncode == {"improved": 0, "not-improved": 1}[data["status"]]
    assert (data["run"], data["spend"]["trials"]) == (run["run"], 6)
    assert f"#{done + 1} " in resumed.stderr
    assert "#1 " not in resumed.stderr


@pytest.mark.parametrize(
    ("kernel", "status", "code"),
    [("right.cpp", "correct", 0), ("wrong.cpp", "wrong", 1), ("broken.cpp", "compile-error", 1)],
)
def test_verify_tells_right_from_wrong(kopt: Kopt, kernel: str, status: str, code: int) -> None:
    done = kopt("verify", "rms", kernel, "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["status"]) == (code, status), done.stderr
    assert data["reduced_sizes"] is None
    assert "pass" in data["verification"].values() or status == "compile-error"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize(
    ("kernel", "status", "code"), [("right", "correct", 0), ("wrong", "wrong", 1)]
)
def test_verify_interprets_triton_at_reduced_sizes(
    kopt: Kopt, kernel: str, status: str, code: int
) -> None:
    done = kopt("verify", "large", f"{kernel}.py", "--device", "cpu", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["status"]) == (code, status), done.stderr
    assert data["reduced_sizes"] == "rows=128, cols=64"
    assert data["measurement"] is None


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_verify_compiles_for_a_gpu_that_is_not_here(kopt: Kopt) -> None:
    done = kopt("verify", "large", "right.py", "--device", "cpu", "--target", "sm_90")
    assert done.returncode == 0, done.stderr
    assert "verified at reduced sizes rows=128, cols=64" in done.stdout
    header, row = done.stdout.splitlines()[-2:]
    assert header.split()[:4] == ["KERNEL", "TARGET", "REGISTERS", "SPILLS"]
    name, target, registers, spills, *_ = row.split()
    assert (name, target, int(registers) > 0, spills) == ("rows", "sm_90", True, "0")
    unknown = kopt("verify", "rms", "right.py", "--device", "cpu", "--target", "sm_42")
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert "sm_90" in unknown.stderr


def test_measure_times_several_kernels_beside_one_set_of_baselines(kopt: Kopt) -> None:
    done = kopt("measure", "rms", "right.cpp", "wrong.cpp", *QUICK, "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 1  # one is wrong
    right, wrong = data["kernels"]
    assert (wrong["verdict"], wrong["measurement"]) == ("wrong", None)
    speedups = right["measurement"]["speedup"]
    beaten = all(i["low"] > 1 + right["measurement"]["noise"] for i in speedups.values())
    assert right["verdict"] == ("improved" if beaten else "not-improved")
    assert done.stderr.count("opening") == 1


def test_a_broken_reference_is_a_usage_error_and_leaves_no_run(home: Path, kopt: Kopt) -> None:
    folder = home / "raises"
    folder.mkdir()
    (folder / "problem.toml").write_text(PROBLEM.format(rows=4, cols=4))
    (folder / "reference.py").write_text("def rms_norm(x, weight):\n    raise ValueError('[no]')\n")
    done = kopt("optimize", "raises", *QUICK, "--runs-dir", "none")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1] == (
        "kopt: the reference of problem 'raises' raised ValueError: [no] (reference.py, line 2)"
    )
    assert kopt("show", "--runs-dir", "none").stdout.startswith("no runs here")


def test_zero_width_is_refused_before_anything_is_spent(home: Path, kopt: Kopt) -> None:
    done = kopt(
        "optimize", "rms", "--search", "beam", "-o", "search.beam.width=0", "--runs-dir", "zero"
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "width" in done.stderr
    assert "opening" not in done.stderr
    assert not (home / "zero").exists()


def test_doctor_and_plugins_give_json(kopt: Kopt) -> None:
    doctor = kopt("doctor", "--json")
    checks = json.loads(doctor.stdout)["checks"]
    assert doctor.returncode == int(any(check["state"] == "fail" for check in checks))
    plugins = json.loads(kopt("plugins", "--check", "--json").stdout)["plugins"]
    assert {row["name"] for row in plugins} >= {"cpp", "torch", "verify", "beam", "native"}


def test_another_arithmetic_is_named_wherever_it_is_asked_for(home: Path, kopt: Kopt) -> None:
    strict = ("--precision", "strict")
    words = "float32 arithmetic: strict, the reference without TF32"
    quick = (*QUICK, "--runs-dir", "strict", "--max-trials", "1", "--strategy", "starters")
    run = kopt("optimize", "rms", *quick, *strict)
    assert words in run.stdout
    shown = json.loads(kopt("show", "last", "--runs-dir", "strict", "--json").stdout)
    assert shown["precision"] == "strict"
    assert words in kopt("verify", "rms", "right.cpp", *QUICK[:2], *strict).stdout
    measured = kopt("measure", "rms", "right.cpp", *QUICK, *strict, "--json")
    assert json.loads(measured.stdout)["precision"] == "strict"
    wrong = kopt("verify", "rms", "right.cpp", "--precision", "half")
    assert (wrong.returncode, wrong.stdout) == (4, "")
    assert "reference, strict, tf32" in wrong.stderr
