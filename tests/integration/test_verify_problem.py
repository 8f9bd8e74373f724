"""``kopt verify PROBLEM`` without a kernel: known-wrong results in a real judge process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kopt.testing.caches import shared_cache

MODULE = """
import torch
import torch.nn as nn



class Model(nn.Module):
    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a problem that can be told from cheats, and one that cannot."""
    folder = tmp_path_factory.mktemp("lint")
    (folder / "relu.py").write_text(MODULE.format(result="torch.relu(x)"))
    (folder / "nothing.py").write_text(MODULE.format(result="x * 0"))
    return folder


def kopt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KOPT_")}
    return subprocess.run(
        [sys.executable, "-m", "kopt", "verify", *arguments, "--device", "cpu"], cwd=folder,
        env={**kept, "KOPT_CACHE_DIR": str(shared_cache(folder)), "COLUMNS": "80"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_table_says_what_a_tolerance_lets_through_and_kopt_does_not(folder: Path) -> None:
    done = kopt(folder, "relu.py")
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["WRONG", "RESULT", "TOLERANCE", "0.0001", "KOPT", "REJECTED", "BY"]
    (identity,) = [line for line in lines if line.startswith("input x returned")]
    assert identity.split("  ")[-1].strip() == "signed"
    assert "lets it through" in identity and "rejects" in identity
    assert "own inputs lets 2 through, kopt 0" in " ".join(done.stdout.split())


def test_a_degenerate_problem_is_said_to_be_one(folder: Path) -> None:
    done = kopt(folder, "nothing.py", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["schema"], data["problem"]) == (1, 1, "nothing"), done.stderr
    assert data["survivors"] == ["zeros", "constant", "stale", "arguments ignored"]
    assert data["distributions"] == ["native", "signed"] and data["tolerance"] == 1e-4
    assert any(note.startswith("degenerate") for note in data["notes"])
    found = {finding["mutation"]: finding for finding in data["findings"]}
    assert found["negated"]["equivalent"] and found["zeros"]["tolerance_accepts"]
    assert found["input x returned"]["rejected_by"] == ["native"]


def test_options_about_a_kernel_need_one(folder: Path) -> None:
    done = kopt(folder, "relu.py", "--target", "sm_90")
    assert (done.returncode, done.stdout) == (4, "")
    assert "kopt verify PROBLEM KERNEL" in done.stderr
