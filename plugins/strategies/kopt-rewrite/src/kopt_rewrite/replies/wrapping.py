"""Code that comes wrapped up: in JSON, in HTML entities, behind a model's thoughts."""

from __future__ import annotations

import html
import json
import re

from kopt_rewrite.replies.languages import looks_like

_KEYS = (
    "diff",
    "patch",
    "code",
    "source",
    "kernel",
    "content",
    "file",
    "module",
    "arguments",
    "answer",
    "solution",
    "text",
)
_THOUGHTS = ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")
_MOST_OBJECTS = 64
"""Places where JSON may begin that are looked at."""
_MOST_AROUND = 600_000
"""Characters of a text in which JSON is looked for: twice the longest file, and something."""
_EDITS = re.compile(r"^[ \t]*(?:`{3}|~{3}|<{5}|@@ |--- )", re.M)
"""What begins a block of code, an edit or a diff."""
_LISTS = re.compile(r"\[\s{0,80}\{|\{\s{0,80}\"")
"""Where a JSON list of objects, or an object, may begin."""
_EDIT_KEYS = (
    ("search", "replace"), ("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"),
    ("find", "replace"), ("original", "replacement"), ("before", "after"),
)  # fmt: skip
_MOST_ITEMS = 400
_ENTITIES = re.compile(r"&(?:lt|gt|quot|#39|#x27|#34);")


def normalised(text: str) -> str:
    """Return text with one kind of line end, no byte order mark, no NUL, no zero-width spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return text.replace("\ufeff", "").replace("\u200b", "").replace("\u00a0", " ")


def without_thoughts(text: str) -> str:
    """Return what comes after a model's thoughts; an end without a beginning counts too."""
    for _, end in _THOUGHTS:
        at = text.rfind(end)
        if at >= 0:
            text = text[at + len(end) :]
    return text


def without_open_thought(text: str) -> str | None:
    """Return a text without the mark that begins thoughts and that nothing ends; None without one."""
    begun = text.lstrip()
    for begin, end in _THOUGHTS:
        if begun.startswith(begin) and end not in begun:
            return begun.removeprefix(begin)
    return None


def from_json(text: str) -> str | None:
    """Return the longest string under a usual key of a JSON value; None where it is no JSON.

    The value may be all of the text, or stand in prose or in a tag; JSON in a text that is code is
    part of that code. A string that is JSON itself is decoded once more.
    """
    found = _whole(text)
    if found is None:
        found = _within(text)
    again = _whole(found) if found is not None else None
    return found if again is None else again


def _whole(text: str) -> str | None:
    stripped = text.strip()
    if not stripped.startswith(("{", "[", '"')):
        return None
    try:
        value = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        return None
    return max(_strings(value, 0), key=len, default=None)


def _within(text: str) -> str | None:
    """Return the code in the first JSON object of a text that has some; None where it is code."""
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{") if len(text) <= _MOST_AROUND else -1
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = max(_strings(value, 0), key=len, default="")
            if _is_code(found) or _is_code(_whole(found) or ""):
                return found if not looks_like(text[:at] + text[end:]) else None
        at = text.find("{", end)
    return None


def _is_code(text: str) -> bool:
    return bool(looks_like(text) or _EDITS.search(text))


def _strings(value: object, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    if depth > 4:
        return []
    if isinstance(value, list):
        return [text for item in value[:64] for text in _strings(item, depth + 1)]
    if isinstance(value, dict):
        named = [value[key] for key in _KEYS if key in value]
        values = named or [v for v in value.values() if isinstance(v, (dict, list))]
        return [text for item in values for text in _strings(item, depth + 1)]
    return []


def edits_in_json(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a JSON list of edits, under the names that models use for them.

    The list may be all of the text, or stand in prose; one in a text that is code is part of that.
    """
    try:
        return _pairs(json.loads(text, strict=False), 0)
    except (ValueError, RecursionError):
        pass
    decoder = json.JSONDecoder(strict=False)
    begin = _LISTS.search(text) if len(text) <= _MOST_AROUND else None
    for _ in range(_MOST_OBJECTS):
        if begin is None:
            break
        at = begin.start()
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = begin.end()
        else:
            if found := _pairs(value, 0):
                return [] if looks_like(text[:at] + text[end:]) else found
        begin = _LISTS.search(text, end)
    return []


def _pairs(value: object, depth: int) -> list[tuple[str, str]]:
    """Return the edits in a JSON value, as far down as tool calls put them."""
    if depth > 4:
        return []
    if isinstance(value, list):
        return [pair for item in value[:_MOST_ITEMS] for pair in _pairs(item, depth + 1)]
    if not isinstance(value, dict):
        return []
    named = {str(key).lower(): each for key, each in value.items()}
    for old, new in _EDIT_KEYS:
        if {old, new} <= set(named):
            return [(_text(named[old]), _text(named[new]))]
    inner = [each for each in value.values() if isinstance(each, (dict, list))]
    return next(filter(None, (_pairs(each, depth + 1) for each in inner)), [])


def _text(value: object) -> str:
    """Return a text that may be given as the list of its lines."""
    lines = value if isinstance(value, list) else ["" if value is None else value]
    return "\n".join(map(str, lines))


def unescaped(code: str) -> str:
    """Return code without HTML's entities, where all of it was escaped; else as it is."""
    if _ENTITIES.search(code) and "<" not in code and ">" not in code:
        return html.unescape(code)
    return code
