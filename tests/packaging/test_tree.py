"""The shape of the repository: where things lie, and what nothing is called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Distribution

# The groups of hookspecs; a plugin's folder is named after its role, in the plural.
KINDS = {
    "profilers", "judges", "backends", "verifiers", "strategies", "search", "llm", "executors",
    "formats", "exporters",
}  # fmt: skip
VAGUE = re.compile(r"^(utils?|common|base|helpers?|misc)$")


def entries(folder: Path) -> set[str]:
    """Return what lies in a folder, without what tools leave there."""
    return {
        path.name
        for path in folder.iterdir()
        if not re.match(r"__pycache__|\..*_cache|.*\.egg-info", path.name)
    }


def test_a_plugin_is_two_files_and_two_folders(plugins: list[Distribution]) -> None:
    assert plugins
    for plugin in plugins:
        assert entries(plugin.folder) == {"pyproject.toml", "README.md", "src", "tests"}, (
            plugin.name
        )
        assert entries(plugin.folder / "src") == {plugin.package}, plugin.name
        assert plugin.folder.name == plugin.name
        assert plugin.folder.parent.name in KINDS


def test_a_plugin_lies_in_the_folder_of_its_role(plugins: list[Distribution]) -> None:
    for plugin in plugins:
        groups = plugin.pyproject["project"]["entry-points"]
        roles = {group.removeprefix("kopt.") for group in groups}
        kind = plugin.folder.parent.name
        assert {kind, kind.removesuffix("s"), kind.removesuffix("ies") + "y"} & roles, plugin.name


def test_every_distribution_is_typed(distributions: list[Distribution]) -> None:
    for each in distributions:
        assert (each.source / "py.typed").is_file(), each.name
        assert (each.source / "__init__.py").is_file(), each.name


def test_every_distribution_has_tests(distributions: list[Distribution]) -> None:
    for each in distributions:
        assert list((each.folder / "tests").rglob("test_*.py")), f"{each.name} has no test"


def test_a_readme_says_more_than_the_name(plugins: list[Distribution]) -> None:
    for plugin in plugins:
        text = (plugin.folder / "README.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {plugin.name}\n")
        assert len(text.split()) > 40, f"{plugin.name}'s README is a stub"


def test_nothing_has_a_vague_name(root: Path, sources: list[Path]) -> None:
    for path in sources:
        parts = [*path.relative_to(root).parts[:-1], path.stem]
        assert not any(VAGUE.match(part) for part in parts), path


def test_a_test_folder_is_no_package(root: Path) -> None:
    """Equal file names in two test folders do not clash only as long as none is a package."""
    places = [root / "tests", *root.glob("core/tests"), *root.glob("plugins/*/*/tests")]
    assert not [path for place in places for path in place.rglob("__init__.py")]


def test_a_module_says_what_it_is_for(sources: list[Path]) -> None:
    for path in sources:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(('"""', 'r"""')) or path.name == "_version.py", path
        if "\ndef " in text or "\nclass " in text:
            assert "from __future__ import annotations" in text, path
