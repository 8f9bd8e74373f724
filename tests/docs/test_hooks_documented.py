"""docs/reference/hooks.md lists every hook, with exactly its arguments, in the order of a run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from kopt import hookspecs

HOOKS = {
    name: function for name, function in vars(hookspecs).items() if hasattr(function, "kopt_spec")
}
HEADING = re.compile(r"^### `(kopt_\w+)\(([^)]*)\)`$", re.MULTILINE)
NEEDS_ANSWER = ("kopt_load_problem", "kopt_open_reference", "kopt_build", "kopt_verify")


def page(root: Path) -> str:
    return (root / "docs" / "reference" / "hooks.md").read_text(encoding="utf-8")


def bodies(root: Path) -> dict[str, str]:
    """Return hook to what the page says of it."""
    parts = re.split(r"^#{2,3} .*$", page(root), flags=re.MULTILINE)
    headings = re.findall(r"^#{2,3} .*$", page(root), re.MULTILINE)
    return {
        match[1]: body
        for heading, body in zip(headings, parts[1:], strict=True)
        if (match := HEADING.match(heading))
    }


def test_every_hook_has_its_heading_with_its_arguments(root: Path) -> None:
    documented = HEADING.findall(page(root))
    declared = [
        (name, ", ".join(inspect.signature(function).parameters))
        for name, function in HOOKS.items()
    ]
    assert documented == declared


def test_first_results_are_marked(root: Path) -> None:
    for name, body in bodies(root).items():
        first = getattr(HOOKS[name], "kopt_spec")["firstresult"]  # noqa: B009 - pluggy's mark
        assert ("first result" in body) == first, name


def test_the_role_is_the_one_that_the_declaration_names(root: Path) -> None:
    for name, body in bodies(root).items():
        declared = re.search(r"\(role ``(\w+)``", inspect.getdoc(HOOKS[name]) or "")
        if declared:
            assert f"Role `{declared[1]}`" in body, name


def test_the_process_is_the_one_that_the_declaration_names(root: Path) -> None:
    for name, body in bodies(root).items():
        text = inspect.getdoc(HOOKS[name]) or ""
        for process in ("the judge process", "a candidate process"):
            if f"Called in {process}" in text:
                assert f"**in {process}**" in body, name


def test_hooks_that_need_an_answer_are_named(root: Path) -> None:
    introduction = page(root).split("\n## ")[0]
    assert all(f"`{name}`" in introduction for name in NEEDS_ANSWER)


def test_every_hook_is_documented_where_it_is_declared() -> None:
    assert all(inspect.getdoc(function) for function in HOOKS.values())
