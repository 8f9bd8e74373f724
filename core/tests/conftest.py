"""Fixtures for the tests of core: distributions and GPUs that exist only in a test's folder."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from kopt.machine import gpu_names


class FakeDistributions:
    """Writes dist-info folders and modules as an installer would, into one folder on sys.path."""

    def __init__(self, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self._monkeypatch = monkeypatch
        self.modules: list[str] = []

    def add(
        self,
        name: str,
        version: str = "0.1.0",
        *,
        plugins: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
        modules: Mapping[str, str] | None = None,
        entry_points: str | None = None,
        site: Path | None = None,
    ) -> None:
        """Write a distribution; ``plugins`` maps ``role.name`` to ``module:Class``."""
        folder = (site or self.site) / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        if entry_points is None:
            groups: dict[str, list[str]] = {}
            for key, target in (plugins or {}).items():
                role, _, plugin = key.partition(".")
                groups.setdefault(role, []).append(f"{plugin} = {target}")
            entry_points = "\n".join(
                f"[kopt.{role}]\n" + "\n".join(entries) + "\n" for role, entries in groups.items()
            )
        (folder / "entry_points.txt").write_text(entry_points)
        for module, source in (modules or {}).items():
            ((site or self.site) / f"{module}.py").write_text(source)
            self.modules.append(module)
        importlib.invalidate_caches()

    def hide_others(self) -> None:
        """List these distributions only, whatever else this environment has."""
        only = functools.partial(metadata.distributions, path=[str(self.site)])
        self._monkeypatch.setattr(metadata, "distributions", only)


@pytest.fixture
def distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDistributions]:
    """Distributions of this test, importable until it ends."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    fake = FakeDistributions(site, monkeypatch)
    yield fake
    for module in fake.modules:
        sys.modules.pop(module, None)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Put an nvidia-smi that runs a shell script in the place of the machine's."""

    def write(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        gpu_names.cache_clear()

    yield write
    gpu_names.cache_clear()
