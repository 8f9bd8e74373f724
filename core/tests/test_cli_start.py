"""Starting the command line is free: nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Not pydantic: typer itself may use it where it describes a verb's options.
HEAVY = {"torch", "triton", "cupy", "openai", "numpy", "stevedore", "pluggy", "structlog"}
CODE = """
import sys
from kopt.cli.app import main
try:
    main({arguments!r})
except SystemExit as end:
    print(end.code, *sorted(set(sys.modules) & {heavy!r}), file=sys.stderr)
"""


def started(*arguments: str, heavy: set[str]) -> list[str]:
    """Return the exit code and which of ``heavy`` were imported."""
    code = CODE.format(arguments=list(arguments), heavy=heavy)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "arguments", [("--help",), ("optimize", "--help"), ("config", "show", "--help"), ("--version",)]
)
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert started(*arguments, heavy=HEAVY) == ["0"]


def test_plugins_and_settings_are_shown_without_a_framework() -> None:
    frameworks = {"torch", "triton", "cupy", "openai", "numpy"}
    assert started("plugins", heavy=frameworks) == ["0"]
    assert started("config", "show", heavy=frameworks) == ["0"]


def test_python_m_kopt_is_kopt() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kopt", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("kopt ")
    assert done.returncode == 0
