"""docs/reference/errors.md has every error with its exit code, and every status."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from kopt import ExitCode, Status, errors
from kopt.errors import KoptError


@pytest.fixture
def text(root: Path) -> str:
    return (root / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


def test_every_error_with_its_exit_code(text: str) -> None:
    rows = re.findall(r"^\| `(\w+Error)` \| (\d) \|", text, re.MULTILINE)
    raised = {
        name: int(kind.exit_code)
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, KoptError)
    }
    assert {name: int(code) for name, code in rows} == raised


def test_every_error_stands_in_the_tree_of_its_module() -> None:
    tree = re.findall(r"(\w+Error)\b", (errors.__doc__ or "").split("\n\n", 1)[1])
    declared = [name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, KoptError)]  # fmt: skip
    assert tree == declared


def test_every_exit_code(text: str) -> None:
    rows = re.findall(r"^\| (\d) \| `(\w+)` \|", text, re.MULTILINE)
    assert rows == [(str(int(code)), code.name) for code in ExitCode]


def test_every_status(text: str) -> None:
    section = text.split("## Statuses")[1]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == [str(s) for s in Status]
