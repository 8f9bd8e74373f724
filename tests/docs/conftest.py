"""The pages: a test that takes ``page`` runs once for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What tools, set-up and runs leave in a checkout.
_LEFT = re.compile(r"^(\.venv.*|\.kopt|\..*_cache|dist|build|trials)$")


def _pages() -> list[Path]:
    found = [
        path for path in sorted(ROOT.rglob("*.md"))
        if not any(_LEFT.match(part) for part in path.relative_to(ROOT).parts)
    ]  # fmt: skip
    assert ROOT / "README.md" in found
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that asks for a page every Markdown file of the repository."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", _pages(), ids=lambda path: str(path.relative_to(ROOT)))


@pytest.fixture(scope="session")
def pages() -> list[Path]:
    return _pages()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
