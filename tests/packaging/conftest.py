"""The distributions of this repository, as their pyproject files describe them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Distribution:
    """One distribution's folder and its ``pyproject.toml``."""

    folder: Path
    pyproject: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.pyproject["project"]["name"])

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.package


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def distributions() -> list[Distribution]:
    """The core first, then every plugin."""
    folders = [
        ROOT / "core",
        *sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml")),
    ]
    return [
        Distribution(folder, tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")))
        for folder in folders
    ]


@pytest.fixture(scope="session")
def plugins(distributions: list[Distribution]) -> list[Distribution]:
    return distributions[1:]


@pytest.fixture(scope="session")
def sources(distributions: list[Distribution]) -> list[Path]:
    """Every Python file that is shipped."""
    return [path for each in distributions for path in sorted(each.source.rglob("*.py"))]
