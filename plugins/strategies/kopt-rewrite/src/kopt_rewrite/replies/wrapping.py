"""Code that comes wrapped up: in JSON, in HTML entities, behind a model's thoughts."""

from __future__ import annotations

import html
import json
import re

_KEYS = (
    "diff",
    "patch",
    "code",
    "source",
    "kernel",
    "content",
    "file",
    "module",
    "answer",
    "solution",
    "text",
)
_THOUGHTS = ("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")
_ENTITIES = re.compile(r"&(?:lt|gt|quot|#39|#x27|#34);")


def normalised(text: str) -> str:
    """Return text with one kind of line end, no byte order mark, no NUL, no zero-width spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return text.replace("\ufeff", "").replace("\u200b", "").replace("\u00a0", " ")


def without_thoughts(text: str) -> str:
    """Return what comes after a model's thoughts; an end without a beginning counts too."""
    for begin, end in _THOUGHTS:
        at = text.rfind(end)
        if at >= 0:
            text = text[at + len(end) :]
        elif text.lstrip().startswith(begin):
            return ""  # it never got to its answer
    return text


def from_json(text: str) -> str | None:
    """Return the longest string under a usual key of a JSON value; None where it is no JSON."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[", '"')):
        return None
    try:
        value = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        return None
    found = _strings(value, 0)
    return max(found, key=len, default=None)


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
    """Return the pairs of a JSON list of edits, under the names that models use for them."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return []
    try:
        value = json.loads(stripped, strict=False)
    except (ValueError, RecursionError):
        return []
    if isinstance(value, dict):
        value = next((each for each in value.values() if isinstance(each, list)), [])
    found = []
    for item in value if isinstance(value, list) else []:
        for old, new in (("search", "replace"), ("old", "new"), ("old_string", "new_string")):
            if isinstance(item, dict) and {old, new} <= set(item):
                found.append((str(item[old]), str(item[new])))
    return found


def unescaped(code: str) -> str:
    """Return code without HTML's entities, where all of it was escaped; else as it is."""
    if _ENTITIES.search(code) and "<" not in code and ">" not in code:
        return html.unescape(code)
    return code
