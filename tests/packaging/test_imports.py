"""Importing is free: the core brings in no framework, compiler or LLM client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "triton", "cupy", "openai", "numpy", "scipy", "optuna", "pandas", "matplotlib")
REPORT = f"""
heavy = sorted(name for name in {HEAVY!r} if name in sys.modules)
print("HEAVY", heavy, file=sys.stderr)
sys.exit(1 if heavy else 0)
"""
VERB = """
import sys
from kopt.cli.app import main
try:
    main({arguments!r})
except SystemExit as end:
    if end.code not in (0, None):
        raise
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, check=False
    )


def test_the_check_sees_a_heavy_import(tmp_path: Path) -> None:
    done = run(f"import sys, numpy\n{REPORT}", tmp_path)
    assert done.returncode == 1
    assert "HEAVY ['numpy']" in done.stderr


def test_import_kopt(tmp_path: Path) -> None:
    done = run(f"import sys, kopt\n{REPORT}", tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_public_name(tmp_path: Path) -> None:
    program = "import sys, kopt\nfor name in kopt.__all__:\n    getattr(kopt, name)\n"
    done = run(program + REPORT, tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_module_of_the_core(tmp_path: Path, sources: list[Path]) -> None:
    """No module of the core needs a framework, not even when it is imported."""
    core = [path for path in sources if path.is_relative_to(Path(__file__).parents[2] / "core")]
    names = [
        ".".join(path.with_suffix("").parts[path.parts.index("src") + 1 :]).removesuffix(".__init__")
        for path in core
        if path.name != "__main__.py" and not {"testing", "fixtures"} & set(path.parts)
    ]  # fmt: skip
    assert "kopt.session" in names
    program = f"import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n"
    done = run(program + REPORT, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["optimize", "--help"], ["plugins"], ["plugins", "--json"], ["config", "show"]]
)  # fmt: skip
def test_looking_around(arguments: list[str], tmp_path: Path) -> None:
    done = run(VERB.format(arguments=arguments) + REPORT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
