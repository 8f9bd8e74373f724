"""Reads a reply once it is whole: a file that somebody is still writing is not taken for one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

QUIET_SECONDS = 2.0
"""A reply counts once it has been as it is for this long, as seen from here ..."""
OLD_SECONDS = 60.0
"""... or was changed this long ago by its own date: then there is nothing to wait for."""
MOST_SECONDS = 120.0
"""After this long a file that keeps changing is left for the next time."""
MOST_BYTES = 16 << 20
_LOOK_SECONDS = 0.1


class NoReply(NamedTuple):
    """Why there is no reply yet."""

    why: str
    """Empty where there is no file, or an empty one."""


class _State(NamedTuple):
    """What changes when a file does."""

    size: int
    changed_ns: int
    inode: int


def read_reply(path: Path) -> str | NoReply:
    """Return a reply's text; waits while it changes. Never raises for what a file may be."""
    if path.exists() and not path.is_file():
        return NoReply("it is no file")
    began = since = time.monotonic()
    state = _state(path)
    while state is not None and state.size:
        if time.monotonic() - since >= QUIET_SECONDS or _age(state) >= OLD_SECONDS:
            content = _content(path, state)
            if content is not None:
                return _text(content)
        if time.monotonic() - began >= MOST_SECONDS:
            return NoReply("it keeps changing")
        time.sleep(_LOOK_SECONDS)
        now = _state(path)
        if now != state:
            state, since = now, time.monotonic()
    return NoReply("")


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _State(found.st_size, found.st_mtime_ns, found.st_ino)


def _age(state: _State) -> float:
    return time.time() - state.changed_ns / 1e9


def _content(path: Path, state: _State) -> bytes | NoReply | None:
    """Return what a file holds; None where it changed while it was read."""
    if state.size > MOST_BYTES:
        return NoReply(f"it has {state.size} bytes, more than {MOST_BYTES}: write a shorter one")
    try:
        content = path.read_bytes()
    except OSError as error:
        return NoReply(f"it cannot be read: {error}")
    return content if _state(path) == state else None


def _text(content: bytes | NoReply) -> str | NoReply:
    if isinstance(content, NoReply):
        return content
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return NoReply("it is not UTF-8: save it as UTF-8 text")
    return text if text.strip() else NoReply("")
