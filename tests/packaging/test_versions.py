"""One version for all distributions, and pins that agree with it."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

import kopt

if TYPE_CHECKING:
    from conftest import Distribution

# The package index has an unrelated kopt 0.1.0: no pin of ours may let it in.
FOREIGN = "0.1.0"


def own_requirements(distribution: Distribution) -> list[Requirement]:
    """Return what a distribution requires of this repository, extras included."""
    project = distribution.pyproject["project"]
    extras = project.get("optional-dependencies", {}).values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    found = [Requirement(text) for text in texts]
    return [each for each in found if each.name == "kopt" or each.name.startswith("kopt-")]


def test_the_version_is_above_the_foreign_one() -> None:
    assert Version(kopt.__version__) >= Version("0.2.0")


def test_every_distribution_reads_the_one_version_file(
    root: Path, distributions: list[Distribution]
) -> None:
    for each in distributions:
        assert each.pyproject["project"]["dynamic"] == ["version"]
        path = each.folder / each.pyproject["tool"]["hatch"]["version"]["path"]
        assert path.resolve() == root / "core" / "src" / "kopt" / "_version.py", each.name


def test_what_is_installed_has_that_version(distributions: list[Distribution]) -> None:
    assert {metadata.version(each.name) for each in distributions} == {kopt.__version__}


def test_pins_agree(distributions: list[Distribution]) -> None:
    release = Version(kopt.__version__)
    wanted = f"~={release.major}.{release.minor}.0"
    names = {each.name for each in distributions}
    for each in distributions:
        for requirement in own_requirements(each):
            assert str(requirement.specifier) == wanted, f"{each.name}: {requirement}"
            assert kopt.__version__ in requirement.specifier
            assert FOREIGN not in requirement.specifier
            assert requirement.name in names, f"{each.name} requires {requirement.name}"


def test_every_plugin_requires_the_core(plugins: list[Distribution]) -> None:
    for plugin in plugins:
        assert "kopt" in {requirement.name for requirement in own_requirements(plugin)}, plugin.name


def test_one_python_and_one_licence(distributions: list[Distribution]) -> None:
    for each in distributions:
        assert each.pyproject["project"]["requires-python"] == ">=3.11", each.name
        assert each.pyproject["project"]["license"] == "Apache-2.0", each.name


def test_the_set_up_lists_every_distribution(root: Path, distributions: list[Distribution]) -> None:
    pip = (root / "requirements-dev.txt").read_text(encoding="utf-8")
    folders = {f"./{each.folder.relative_to(root).as_posix()}" for each in distributions}
    assert set(re.findall(r"^-e (\S+)$", pip, re.MULTILINE)) == folders
    workspace = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert set(workspace["uv"]["sources"]) == {each.name for each in distributions}
    searched = {f"$MYPY_CONFIG_FILE_DIR/{folder.removeprefix('./')}/src" for folder in folders}
    own = "$MYPY_CONFIG_FILE_DIR/benchmarks"  # its scripts import each other
    assert set(workspace["mypy"]["mypy_path"]) == {own, *searched}


def test_the_changelog_has_an_entry_for_this_version(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    [first, *_] = re.findall(r"^## \[([^\]]+)\]", text, re.MULTILINE)
    assert first in {kopt.__version__, "Unreleased"}
    assert f"## [{kopt.__version__}]" in text
