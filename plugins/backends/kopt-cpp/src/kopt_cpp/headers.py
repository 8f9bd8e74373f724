"""The headers of the user's that a source reaches: they decide the binary as the source does."""

from __future__ import annotations

import hashlib
import re
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_cpp.compiler import Compiler

_PLAIN = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?!\.)[\w.+\-]+(?:/(?!\.)[\w.+\-]+)*>", re.M)
"""``#include <name>``: a header of the compiler's own where nothing says otherwise."""
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t\f\v\r]*\n")
_NAMES_FILES = re.compile(r"include|import|embed|incbin")
_SEARCHES = ("-I", "-i", "-B", "--sysroot", "@")


def contents(source: str, compiler: Compiler, flags: Sequence[str]) -> dict[str, str]:
    """Return the hash of every header that the compiler reads, by its path.

    Empty where none but the compiler's own can be reached, whose version stands for them. Where the
    compiler cannot tell, what is returned never comes again, so that no build is taken for this:
    so it is where the source says ``.incbin``, whose files the assembler reads. One that puts that
    word together from parts is not found out.
    """
    words = _words(source)
    if "incbin" in words:
        return {"unknown": secrets.token_hex(16)}
    if not words and not any(f.startswith(_SEARCHES) for f in flags):
        return {}
    done = subprocess.run(
        [compiler.path, *flags, "-M", "-x", "c++", "-"], input=source, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"unknown": secrets.token_hex(16)}
    _, _, listed = done.stdout.replace("\\\n", " ").partition(":")
    paths = [each.replace("\\ ", " ") for each in re.findall(r"(?:\\.|\S)+", listed)]
    return {name: _hash(Path(name)) for name in sorted(paths) if name != "-"}


def _words(source: str) -> set[str]:
    """Return the words by which a source may read files besides plain includes of ``<name>``.

    They are looked for everywhere, in comments and strings too: a quoted path, a macro, a digraph,
    a comment before the name or a line that goes on have the compiler asked once too often.
    """
    rest = _PLAIN.sub("", source)
    return {word for text in (rest, _SPLICE.sub("", rest)) for word in _NAMES_FILES.findall(text)}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else "missing"
