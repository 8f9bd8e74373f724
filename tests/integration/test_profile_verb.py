"""``kopt profile``, ``kopt analyze`` and ``kopt doctor --measure`` as a user has them, on this CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.testing.caches import shared_cache

pytest.importorskip("torch")

PROBLEM = """
[reference]
function = "double"

[inputs.x]
shape = ["n"]

[[workloads]]
n = 524288
"""
KERNEL = """
// /// kopt
// arguments = ["x", "out", "x.numel"]
// ///
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = FACTOR * x[i];
}
"""
BYTES = 2 * 4 * 524288
Kopt = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("profile_verb")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "double.py").write_text("def double(x):\n    return x * 2\n")
    (folder / "right.cpp").write_text(KERNEL.replace("FACTOR", "2"))
    (folder / "wrong.cpp").write_text(KERNEL.replace("FACTOR", "3"))
    (folder / "problem.toml").write_text(
        PROBLEM.replace("[reference]", '[reference]\nfile = "double.py"')
    )
    return folder


@pytest.fixture(scope="module")
def kopt(home: Path) -> Kopt:
    """Run the command line there, with a cache of its own."""
    own = {"KOPT_CACHE_DIR": str(shared_cache(home)), "COLUMNS": "200"}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **own}
        done = subprocess.run(
            [sys.executable, "-m", "kopt", *arguments], cwd=home, env=environment,
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="module")
def measured(kopt: Kopt) -> dict:
    return json.loads(kopt("doctor", "--measure", "--device", "cpu", "--json").stdout)


def test_the_device_is_measured(measured: dict) -> None:
    peaks = measured["device"]["peaks"]
    assert peaks["copy_gb_s"] > 0.1
    assert peaks["read_gb_s"] > 0.1
    assert peaks["fp32_tflops"] > 1e-4
    assert peaks["fp8_tflops"] is None


def test_a_kernel_is_measured_and_judged(kopt: Kopt, measured: dict) -> None:
    found = json.loads(
        kopt("profile", ".", "right.cpp", "--json", "-o", "backend.torch.compile=false").stdout
    )
    assert found["evaluation"]["status"] == "correct"
    assert found["left_out"] == []
    own, *others = found["profiles"]
    values = {metric["name"]: metric["value"] for metric in own["metrics"]}
    assert values["compulsory_bytes"] == BYTES
    rate = max(measured["device"]["peaks"][f"{way}_gb_s"] for way in ("copy", "read", "write"))
    assert values["bound_us"] == pytest.approx(BYTES / rate / 1e3)
    assert values["achieved_gb_s"] == pytest.approx(BYTES / values["latency_us"] / 1e3)
    static = next(each for each in others if each["profiler"] == "static")
    (kernel,) = [each for each in static["kernels"] if "twice" in each["name"]]
    names = {metric["name"]: metric["value"] for metric in kernel["metrics"]}
    assert names["static_vector_instructions"] > 0
    (diagnosis,) = found["diagnoses"]
    assert diagnosis["judge"] == "roofline"
    assert diagnosis["findings"][0]["evidence"]


def test_what_a_person_reads(kopt: Kopt, measured: dict) -> None:
    text = kopt("profile", ".", "right.cpp", "-o", "backend.torch.compile=false").stdout
    assert "compulsory_bytes" in text
    assert "static_vector_bits" in text
    assert "roofline: " in text


def test_a_wrong_kernel_is_not_profiled(kopt: Kopt, measured: dict) -> None:
    done = kopt("profile", ".", "wrong.cpp", "--json", "-o", "backend.torch.compile=false", code=1)
    found = json.loads(done.stdout)
    assert found["evaluation"]["status"] == "wrong"
    assert found["profiles"] == []


BROKEN = """
import kopt

class Broken:
    @kopt.hookimpl
    def kopt_profile(self, evaluation, device, probe):
        raise RuntimeError("no counter here")
"""


def test_a_profiler_that_fails_is_an_error_where_it_was_named(
    kopt: Kopt, measured: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_profiler.py").write_text(BROKEN)
    about = tmp_path / "broken_profiler-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-profiler\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[kopt.profiler]\nbroken = broken_profiler:Broken\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ("profile", ".", "right.cpp", "--json", "-o", "backend.torch.compile=false")
    for named, code in (((), 0), (("--profiler", "broken", "--profiler", "static"), 1)):
        found = json.loads(kopt(*options, *named, code=code).stdout)
        assert any("no counter here" in reason for reason in found["left_out"])
        assert "static" in {each["profiler"] for each in found["profiles"]}
        assert found["evaluation"]["status"] == "correct"


def test_what_there_is_to_gain(kopt: Kopt, measured: dict) -> None:
    done = kopt("analyze", ".", "--json", "-o", "backend.torch.compile=false")
    found = json.loads(done.stdout)
    assert found["precision"] == "reference"
    (row,) = found["workloads"]
    assert row["work"]["compulsory_bytes"] == BYTES
    assert row["work"]["matrix_flops"] == 0
    assert row["bound"]["limited_by"] == "memory"
    assert row["headroom"] == pytest.approx(
        row["baselines_ms"][found["fastest"]] / row["bound"]["total_ms"]
    )
    assert list(row["per_output"]) == ["out0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile", "show", "gone.ncu-rep"), "no such file"),
        (("profile", "show", "double.py"), "no installed profiler reads it"),
        (("profile", ".", "right.cpp", "--judge", "roofling"), "roofline"),
    ],
)
def test_mistakes_are_told(kopt: Kopt, arguments: tuple[str, ...], said: str) -> None:
    assert said in kopt(*arguments, code=4).stderr
