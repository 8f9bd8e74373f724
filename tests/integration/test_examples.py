"""Every example runs, at a tiny size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kopt
from kopt.testing.caches import shared_cache

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROBLEMS = sorted(path.parent.name for path in EXAMPLES.glob("*/problem.toml"))
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def shrunk(name: str, folder: Path) -> Path:
    """Copy a problem with extents of a 32nd."""
    place = folder / name
    place.mkdir()
    toml = (EXAMPLES / name / "problem.toml").read_text()
    sizes = re.compile(r"^(rows|cols) = (\d+)$", re.MULTILINE)
    assert sizes.search(toml)
    smaller = sizes.sub(lambda size: f"{size[1]} = {max(8, int(size[2]) // 32)}", toml)
    (place / "problem.toml").write_text(smaller)
    (place / "reference.py").write_text((EXAMPLES / name / "reference.py").read_text())
    return place


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KOPT_CACHE_DIR": str(shared_cache(folder))}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text()
    for name in [*PROBLEMS, *SCRIPTS, "acme-kopt"]:
        assert f"[{name}]({name})" in text


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_can_be_read(name):
    problem = kopt.load_problem(EXAMPLES / name)
    assert problem.name == name
    assert problem.inputs


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problems_reference_runs(tmp_path, name):
    reference = pytest.importorskip("kopt_torch.reference")
    opened = reference.TorchReference(kopt.load_problem(shrunk(name, tmp_path)), "cpu")
    assert opened.signature.first.outputs
    inputs = opened.inputs(opened.problem.workloads[0].name, 1)
    (expected,), (oracle,) = opened.expected(inputs), opened.oracle(inputs)
    assert float((expected.double() - oracle).abs().max()) < 0.01


def test_rms_norm_is_optimised(tmp_path):
    pytest.importorskip("kopt_cpp")
    done = run(
        tmp_path, "-m", "kopt", "optimize", str(shrunk("rms_norm", tmp_path)), "--device", "cpu",
        "--max-trials", "2", "-o", "backend.torch.compile=false", "--json",
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)
    assert found["trials"] == {"correct": 2}


@pytest.mark.slow
def test_a_function_of_a_script_is_embedded(tmp_path):
    pytest.importorskip("kopt_cpp")
    done = run(tmp_path, str(EXAMPLES / "embed.py"), "96")
    assert done.returncode == 0, done.stderr
    status, *speedups = done.stdout.splitlines()
    assert status.partition(":")[0] in {"improved", "not-improved"}
    assert any(re.fullmatch(r"[\d.]+x over eager, at least [\d.]+x", line) for line in speedups)


@pytest.mark.slow
def test_a_strategy_of_a_script_takes_part(tmp_path):
    pytest.importorskip("kopt_cpp")
    done = run(tmp_path, str(EXAMPLES / "custom_strategy.py"), str(shrunk("rms_norm", tmp_path)))
    assert done.returncode == 0, done.stderr
    assert "won by " in done.stdout
    (journal,) = (tmp_path / ".kopt" / "runs").glob("*/journal.jsonl")
    strategies = re.findall(r'"strategy":\s*"(\w+)"', journal.read_text())
    assert {"starters", "flags"} <= set(strategies)
