"""The public surface is a list: sorted, complete, and every name of it there."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import kopt

if TYPE_CHECKING:
    from conftest import Distribution


def test_the_public_names_are_sorted() -> None:
    assert kopt.__all__ == sorted(kopt.__all__)
    assert len(set(kopt.__all__)) == len(kopt.__all__)


def test_every_public_name_is_there() -> None:
    for name in kopt.__all__:
        assert getattr(kopt, name) is not None
    assert dir(kopt) == kopt.__all__


def test_what_type_checkers_see_is_what_there_is() -> None:
    """The names under TYPE_CHECKING, those that load on first use, and __all__ are the same."""
    path = Path(kopt.__file__)
    block = next(
        node for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )  # fmt: skip
    homes = {
        alias.name: node.module
        for node in block.body if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }  # fmt: skip
    assert {*homes, "__version__"} == set(kopt.__all__)
    for name, home in homes.items():
        assert getattr(kopt, name) is vars(importlib.import_module(str(home)))[name]


def test_a_module_does_not_take_a_function_s_place(tmp_path: Path) -> None:
    """The module kopt.optimize is imported by kopt.load_problem, say, before it is first used."""
    program = (
        "import inspect, kopt; kopt.load_problem; assert inspect.isfunction(kopt.optimize);"
        "from kopt.optimize import start; assert inspect.isfunction(kopt.optimize)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_an_unknown_name_is_an_attribute_error() -> None:
    try:
        kopt.optimise  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        assert "optimise" in str(error)
    else:
        raise AssertionError("kopt.optimise exists")


def test_a_plugin_package_exports_its_plugins(plugins: list[Distribution]) -> None:
    for plugin in plugins:
        package = importlib.import_module(plugin.package)
        assert package.__all__ == sorted(package.__all__), plugin.name
        groups = plugin.pyproject["project"]["entry-points"].values()
        targets = [target for group in groups for target in group.values()]
        assert targets
        for target in targets:
            module, _, name = target.partition(":")
            assert module == plugin.package, target
            assert name in package.__all__, target
            assert isinstance(getattr(package, name), type), target
