"""docs/reference/cli.md lists every verb and option, and no page uses one that does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kopt.cli.app import app

ROOT_COMMAND: Any = typer.main.get_command(app)
COMPLETION = {"--install-completion", "--show-completion"}
HELP = {"-h", "--help"}
GROUPS = {"config", "suite"}
"""Verbs of two words begin with these."""


def verbs(command: Any = ROOT_COMMAND, prefix: str = "") -> dict[str, Any]:
    """Return every verb, those of groups as ``config show``, with its command."""
    found = {}
    for name, child in command.commands.items():
        full = f"{prefix}{name}"
        found.update(verbs(child, f"{full} ") if hasattr(child, "commands") else {full: child})
    return found


def options(command: Any) -> set[str]:
    """Return every spelling of every option, except ``--help``."""
    spelled = [p.opts + p.secondary_opts for p in command.params if p.param_type_name == "option"]
    return {option for each in spelled for option in each} - HELP


def documented(section: str) -> set[str]:
    """Return what stands in the first column of a section's tables, as far as it is an option."""
    cells = re.findall(r"^\| ([^|]*`-[^|]*) \|", section, re.MULTILINE)
    return {option for cell in cells for option in re.findall(r"`(-[-\w]+)`", cell)} - HELP


def headings(root: Path) -> dict[str, tuple[str, str]]:
    """Return verb to the rest of its heading and to its section."""
    text = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        words = heading.split()
        assert words[0] == "kopt", heading
        count = 2 if words[1] in GROUPS else 1
        found[" ".join(words[1 : 1 + count])] = (" ".join(words[1 + count :]), body)
    return found


def test_every_verb_has_its_section_in_the_order_of_the_help(root: Path) -> None:
    assert list(headings(root)) == list(verbs())


@pytest.mark.parametrize("verb", list(verbs()))
def test_every_option_is_listed(verb: str, root: Path) -> None:
    _, body = headings(root)[verb]
    assert documented(body) == options(verbs()[verb])


@pytest.mark.parametrize("verb", list(verbs()))
def test_the_heading_has_the_arguments(verb: str, root: Path) -> None:
    heading, _ = headings(root)[verb]
    arguments = [p for p in verbs()[verb].params if p.param_type_name == "argument"]
    assert len(heading.split()) == len(arguments), heading
    for word, argument in zip(heading.split(), arguments, strict=True):
        assert word.startswith("[") == (not argument.required), heading
        assert word.endswith("...") == (argument.nargs == -1), heading


def test_options_of_kopt_itself_are_listed(root: Path) -> None:
    text = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert documented(text) == options(ROOT_COMMAND) | COMPLETION


def test_the_verbs_of_the_plan_exist_and_no_other() -> None:
    assert list(verbs()) == [
        "optimize", "resume", "show", "verify", "measure", "profile", "analyze", "estimate",
        "build",
        "init", "plugins", "doctor", "selftest", "config show", "suite run", "suite compare",
        "suite show",
    ]  # fmt: skip


def used(text: str) -> Iterator[list[str]]:
    """Yield the words of each ``kopt VERB ...`` that stands in code."""
    blocks = re.findall(r"^(?:    |\$ )(?:\.venv/bin/)?(kopt [^\n]*)$", text, re.MULTILINE)
    for line in [*blocks, *re.findall(r"`(kopt [^`\n]*)`", text)]:
        command = line.split("  #")[0].split(" > ")[0].split("; ")[0]
        words = shlex.split(command, posix=True)
        if len(words) > 1 and re.match(r"[a-z]", words[1]):
            yield words[1:]


def test_pages_use_verbs_and_options_that_exist(page: Path) -> None:
    for words in used(page.read_text(encoding="utf-8")):
        count = 2 if words[0] in GROUPS else 1
        verb = " ".join(words[:count])
        assert verb in verbs(), f"{page}: kopt {verb}"
        given = {word.split("=")[0] for word in words[count:] if re.match(r"-{1,2}[a-z]", word)}
        assert given <= options(verbs()[verb]) | HELP, f"{page}: kopt {' '.join(words)}"


def test_the_check_finds_uses() -> None:
    text = (
        "    kopt optimize PROBLEM --search beam -o a.b=1  # why\n`kopt show last`\nkopt makes.\n"
    )
    assert [words[0] for words in used(text)] == ["optimize", "show"]
