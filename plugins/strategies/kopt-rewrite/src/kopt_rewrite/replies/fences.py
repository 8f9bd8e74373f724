"""Code blocks of an answer: fences of both kinds, nested, unclosed, indented, or HTML's."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_FENCE = re.compile(r"^([ \t]*(?:>[ \t]?)*)(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_HTML_BLOCK = re.compile(r"<pre[^>]{0,200}>\s*(?:<code[^>]{0,200}>)?", re.IGNORECASE)
_MOST_FENCES = 2_000
"""Lines that begin or end a block; what comes after them is not looked at."""
_TEXTS = frozenset({"", "markdown", "md", "text", "txt", "plaintext"})


class Block(NamedTuple):
    """One code block."""

    info: str
    """The word after the fence, in lower case."""
    text: str
    closed: bool = True
    escaped: bool = False
    """Whether it came out of HTML."""


class _Open(NamedTuple):
    """A fence that is open."""

    start: int
    """Its first line."""
    mark: str
    indent: str
    info: str


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a text in order; of nested ones the outermost that holds code.

    Takes time proportional to the text.
    """
    lines = text.split("\n")
    nested = _scan(lines, nesting=True)
    # One that nobody closed has swallowed what follows: then every opening fence begins anew.
    found = nested if all(block.closed for block in nested) else _scan(lines, nesting=False)
    inner = [each for block in found for each in _unfolded(block)]
    return inner or _html_blocks(text)


def _scan(lines: list[str], *, nesting: bool) -> list[Block]:
    found: list[Block] = []
    stack: list[_Open] = []
    seen = 0
    for number, line in enumerate(lines):
        match = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if match is None:
            continue
        seen += 1
        if seen > _MOST_FENCES:
            break
        indent, mark, info = match[1], match[2], match[3].strip()
        top = stack[-1] if stack else None
        if top and not info and mark[0] == top.mark[0] and len(mark) >= len(top.mark):
            stack.pop()
            if not stack:
                found.append(_block(lines, top, number, closed=True))
        elif top is None:
            stack.append(_Open(number + 1, mark, indent, info))
        elif info and mark[0] == top.mark[0] and len(mark) >= len(top.mark):
            if not nesting:
                found.append(_block(lines, stack.pop(), number, closed=False))
            stack.append(_Open(number + 1, mark, indent, info))
    if stack:
        found.append(_block(lines, stack[0], len(lines), closed=False))
    return found


def _block(lines: list[str], opened: _Open, end: int, *, closed: bool) -> Block:
    body = lines[opened.start : end]
    if opened.indent:
        body = [line.removeprefix(opened.indent) for line in body]
    words = opened.info.lower().split()
    return Block(words[0].strip("{}.") if words else "", "\n".join(body), closed)


def _unfolded(block: Block) -> list[Block]:
    """Return the code blocks within a block of plain text, or the block itself."""
    if block.info not in _TEXTS or ("```" not in block.text and "~~~" not in block.text):
        return [block]
    inner = _scan(block.text.split("\n"), nesting=True)
    return inner or [block]


def _html_blocks(text: str) -> list[Block]:
    """Return what stands between ``<pre>`` and ``</pre>``."""
    found, at = [], 0
    lower = text.lower()
    while match := _HTML_BLOCK.search(text, at):
        end = lower.find("</pre>", match.end())
        closed, end = end >= 0, end if end >= 0 else len(text)
        body = re.sub(r"\s*</code>\s*$", "\n", text[match.end() : end], flags=re.IGNORECASE)
        language = re.search(r"language-(\w+)", match[0])
        info = language[1].lower() if language else ""
        found.append(Block(info, html.unescape(body), closed, escaped=True))
        at = end + 1
    return found
