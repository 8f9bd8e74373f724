"""The headers that a source reaches, for the key of its build: they decide the binary too."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))', re.M)
_MOST_FILES = 5000


def contents(source: str, own: Sequence[str], vendors: Sequence[str] = ()) -> dict[str, str] | None:
    """Return the hash of every header that may be reached, by its path.

    Conditions are not evaluated, so that there may be some too many. None where a header's name is
    itself a macro, so that it cannot be told; CUDA's own headers may do that.

    :param own: folders of the user's, searched first.
    :param vendors: folders of CUDA's.
    """
    folders = [*own, *vendors]
    found: dict[str, str] = {}
    left: list[tuple[str, Path | None]] = [(source, None)]
    while left and len(found) < _MOST_FILES:
        text, folder = left.pop()
        for match in _INCLUDE.finditer(text):
            if match[3]:
                if folder is None or not any(folder.is_relative_to(each) for each in vendors):
                    return None
                continue
            path = _resolved(match[1] or match[2], folder if match[1] else None, folders)
            if path is None or str(path) in found:
                continue
            content = path.read_bytes()
            found[str(path)] = hashlib.sha256(content).hexdigest()[:16]
            left.append((content.decode(errors="replace"), path.parent))
    return found


def _resolved(name: str, beside: Path | None, folders: Sequence[str]) -> Path | None:
    for folder in [beside, *map(Path, folders)]:
        if folder is not None and (folder / name).is_file():
            return folder / name
    return None
