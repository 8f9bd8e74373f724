"""A third party's strategy: its wheel, installed elsewhere, is found and wins a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kopt.testing.caches import shared_cache

pytest.importorskip("kopt_torch")
pytest.importorskip("kopt_cpp")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("acme")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine on which the wheel is installed; it is not installed here."""
    folder = tmp_path_factory.mktemp("acme")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", str(folder), str(EXAMPLES / "acme-kopt")], check=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith("acme_kopt-1.0-")
    site = folder / "site"
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True)
    assert (site / "acme_kopt" / "moving_average.cpp").is_file()
    return {**os.environ, "PYTHONPATH": str(site), "KOPT_CACHE_DIR": str(shared_cache(folder))}


def kopt(
    environment: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kopt", *arguments], cwd=folder, env=environment, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def small_problem(folder: Path) -> Path:
    """The example's problem with an eighth of its rows."""
    place = folder / "moving_average"
    place.mkdir()
    for name in ("problem.toml", "reference.py"):
        text = (EXAMPLES / "moving_average" / name).read_text()
        (place / name).write_text(text.replace("8192", "1024"))
    return place


def test_it_is_listed_and_works(installed, tmp_path):
    done = kopt(installed, tmp_path, "plugins", "--role", "strategy", "--check", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["plugins"]}
    assert rows["acme"]["distribution"] == "acme-kopt"
    assert rows["acme"]["version"] == "1.0"
    assert rows["acme"]["status"] == "ready"


def test_without_it_nobody_knows_the_operator(tmp_path):
    environment = {**os.environ, "KOPT_CACHE_DIR": str(shared_cache(tmp_path))}
    done = kopt(
        environment, tmp_path, "optimize", str(small_problem(tmp_path)), "--strategy", "acme"
    )
    assert done.returncode == 4
    assert "acme" in done.stderr


def test_it_wins_a_run(installed, tmp_path):
    done = kopt(
        installed, tmp_path, "optimize", str(small_problem(tmp_path)), "--strategy", "starters",
        "--strategy", "acme", "--backend", "cpp", "--device", "cpu", "--json",
        "-o", "backend.torch.compile=false",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["status"] == "improved"
    assert run["trials"] == {"correct": 1}
    source = Path(run["best"]["source_path"]).read_text()
    assert source == (EXAMPLES / "acme-kopt/src/acme_kopt/moving_average.cpp").read_text()
    assert "acme: several rows at a time" in done.stderr
    assert all(speedup["low"] > 1 for speedup in run["best"]["speedup"].values())


def test_it_keeps_the_contract_of_strategies(installed, tmp_path):
    tests = EXAMPLES / "acme-kopt" / "tests"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)], text=True,
        cwd=tmp_path, env=installed, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
