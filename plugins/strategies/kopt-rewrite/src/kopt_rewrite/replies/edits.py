"""Search and replace blocks and unified diffs, applied to a source by its content."""

from __future__ import annotations

import re
from typing import NamedTuple

from kopt_rewrite.replies.numbering import without_numbers

_SEARCH = re.compile(r"^[ \t]*<{5,9}[ \t]*(?:SEARCH|ORIGINAL|HEAD)?[ \t]*$")
_DIVIDE = re.compile(r"^[ \t]*={5,9}[ \t]*$")
_REPLACE = re.compile(r"^[ \t]*>{5,9}[ \t]*(?:REPLACE|UPDATED|[\w./-]*)[ \t]*$")
_HUNK = re.compile(r"^@@.*@@|^@@\s*$")
MOST_EDITS = 200


class Edit(NamedTuple):
    """One replacement."""

    old: tuple[str, ...]
    """Lines."""
    new: tuple[str, ...]


class EditError(Exception):
    """An edit does not apply."""


def search_blocks(text: str) -> list[Edit]:
    """Return the search and replace blocks of a text; one that is not closed is left out.

    Raises EditError where there are far too many.
    """
    found: list[Edit] = []
    old: list[str] | None = None
    new: list[str] | None = None
    for line in text.split("\n"):
        if _SEARCH.match(line):
            old, new = [], None
        elif old is not None and new is None and _DIVIDE.match(line):
            new = []
        elif old is not None and new is not None and _REPLACE.match(line):
            found.append(Edit(tuple(old), tuple(new)))
            old, new = None, None
        elif new is not None:
            new.append(line)
        elif old is not None:
            old.append(line)
    return _bounded(found)


def open_search(text: str) -> bool:
    """Return whether the last search block of a text is not closed."""
    opened = False
    for line in text.split("\n"):
        if _SEARCH.match(line):
            opened = True
        elif _REPLACE.match(line):
            opened = False
    return opened


def diff_hunks(text: str) -> list[Edit]:
    """Return the hunks of a unified diff; line numbers are not believed. Raises EditError."""
    found: list[Edit] = []
    hunk: list[str] | None = None
    for line in [*text.split("\n"), "@@"]:
        if _HUNK.match(line):
            if hunk:
                found.append(_edit(hunk))
            hunk = []
        elif hunk is not None and line[:1] in {"+", "-", " ", ""} and not _between_files(line):
            hunk.append(line)
    return _bounded([edit for edit in found if edit.old != edit.new])


def _between_files(line: str) -> bool:
    return re.match(r"(?:---|\+\+\+) (?:[ab]/|/dev/null)", line) is not None


def _edit(hunk: list[str]) -> Edit:
    while hunk and not hunk[-1]:
        hunk.pop()
    old = tuple(line[1:] for line in hunk if not line.startswith("+"))
    new = tuple(line[1:] for line in hunk if not line.startswith("-"))
    return Edit(old, new)


def _bounded(edits: list[Edit]) -> list[Edit]:
    if len(edits) > MOST_EDITS:
        raise EditError(f"there are {len(edits)} edits; send the whole file")
    return edits


def apply(edits: list[Edit], source: str) -> str:
    """Return the source with every edit made in turn. Raises EditError.

    What is searched for has to be there once: as it stands, else without the white space at the
    ends of lines, else without their indentation, which is then kept; else without line numbers.
    """
    lines = source.split("\n")
    for number, edit in enumerate(edits, 1):
        if not any(line.strip() for line in edit.old):
            raise EditError(f"edit {number} searches for nothing")
        lines = _apply_one(number, edit, lines)
    return "\n".join(lines)


def _apply_one(
    number: int, edit: Edit, lines: list[str], *, may_be_listed: bool = True
) -> list[str]:
    for loosened in (str, str.rstrip, str.strip):
        wanted = [loosened(line) for line in edit.old]
        places = _places([loosened(line) for line in lines], wanted)
        if len(places) > 1:
            raise EditError(
                f"edit {number}: what it searches for is there {len(places)} times, first: "
                f"{_first_line(edit)}"
            )
        if places:
            at, end = places[0], places[0] + len(edit.old)
            new = list(edit.new) if loosened is not str.strip else _indented(edit, lines[at])
            return [*lines[:at], *new, *lines[end:]]
    if may_be_listed and (old := without_numbers(edit.old, 1)):
        new_lines = without_numbers(edit.new, 1)
        bare = Edit(tuple(old.lines), tuple(new_lines.lines) if new_lines else edit.new)
        return _apply_one(number, bare, lines, may_be_listed=False)
    raise EditError(f"edit {number}: what it searches for is not in the file: {_first_line(edit)}")


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    """Return where lines stand in others, in line numbers from 0; in linear time."""
    text, part = "\n" + "\n".join(lines) + "\n", "\n" + "\n".join(wanted) + "\n"
    found: list[int] = []
    at, counted, line = text.find(part), 0, 0
    while at >= 0 and len(found) < 2:
        line += text.count("\n", counted, at)
        counted = at
        found.append(line)
        at = text.find(part, at + 1)
    return found


def _indented(edit: Edit, line: str) -> list[str]:
    """Return the new lines moved as far as the old ones stand from where they were said to be."""
    first = next(old for old in edit.old if old.strip())
    said, there = len(first) - len(first.lstrip()), len(line) - len(line.lstrip())
    by = there - said
    moved = []
    for new in edit.new:
        have = len(new) - len(new.lstrip())
        moved.append(" " * max(0, have + by) + new.lstrip() if new.strip() else new)
    return moved


def _first_line(edit: Edit) -> str:
    return next(line.strip() for line in edit.old if line.strip())[:120]
