"""Line numbers that an answer puts in front of code, as listings have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(
    r"[ \t]*(?:L|[Ll]ine )?(\d{1,6})(?:[ \t]*([|│:→])|([.)\]])(?=[ \t]|$)|(?=[ \t]|$))"
)
_FEWEST = 3
"""Lines that make a listing; fewer may begin with numbers of their own."""


class Listing(NamedTuple):
    """Lines without their numbers."""

    lines: list[str]
    gap: str = ""
    """Which numbers are missing in between, as ``41 to 54``; empty where none is."""


class _Line(NamedTuple):
    """A line of a listing."""

    number: int
    begin: int
    """Where what follows the number and its mark begins."""
    mark: str


def without_numbers(lines: Sequence[str], fewest: int = _FEWEST) -> Listing | None:
    """Return lines without the numbers in front of them; None where not all of them have one.

    Numbers count up, with the same mark behind each; an empty line may lack its own.
    """
    found = [_numbered(line) for line in lines]
    numbered = [each for each in found if each is not None]
    if len(numbered) < fewest or len(numbered) != sum(bool(line.strip()) for line in lines):
        return None
    if len({each.mark for each in numbered}) > 1:
        return None
    gap, before, empty = "", numbered[0].number - 1, 0
    for each in found:
        if each is None:
            empty += 1
            continue
        if each.number <= before:
            return None
        if each.number > before + 1 + empty:
            gap = gap or f"{before + 1} to {each.number - 1}"
        before, empty = each.number, 0
    return Listing(_cut(lines, found), gap)


def numbered_part(text: str) -> Listing | None:
    """Return the longest listing in a text, as between two paragraphs; None without one."""
    lines = text.split("\n")
    begin, best, before = 0, (0, 0), None
    for at, line in enumerate([*lines, "the end"]):
        if not line.strip():
            continue
        found = _numbered(line)
        if found and before and found.mark == before.mark and found.number > before.number:
            before = found
            continue
        if before is not None:
            best = max(best, (begin, at), key=lambda part: part[1] - part[0])
        begin, before = at, found
    return without_numbers(lines[slice(*best)])


def _numbered(line: str) -> _Line | None:
    match = _NUMBER.match(line)
    return _Line(int(match[1]), match.end(), match[2] or match[3] or "") if match else None


def _cut(lines: Sequence[str], found: list[_Line | None]) -> list[str]:
    """Return what follows the numbers, indented as it was.

    A mark is followed by one space in each line, or in none. Numbers that only spaces follow may be
    padded behind: of both readings the one that leaves less white space in front is right.
    """
    pairs = list(zip(lines, found, strict=True))
    rest = [line[each.begin :] if each else "" for line, each in pairs]
    marked = any(each.mark for each in found if each)
    for space in " " if marked else "\t":
        if all(not line.strip() or line.startswith(space) for line in rest):
            return [line[1:] for line in rest]
    if marked:
        return rest
    widest = max(each.begin for each in found if each)
    column = [line[widest:] for line in lines]
    if any(each and line[each.begin : widest].strip() for line, each in pairs):
        return _flush(rest)
    return min(_flush(rest), _flush(column), key=lambda each: sum(map(_indentation, each)))


def _flush(rest: list[str]) -> list[str]:
    """Return lines moved to the left as far as all of them can be."""
    common = min((_indentation(line) for line in rest if line.strip()), default=0)
    return [line[common:] if line.strip() else "" for line in rest]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
