"""What two binaries have in common: a hash of their code and data that debug information has no part in."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from typing import Any

from kopt.model.record import content_id

_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
_ASIDE = re.compile(
    rb"(\.rela?)?\.(debug|zdebug|nv_debug|nv\.compat|line|symtab|strtab|shstrtab|comment|note|gnu_debug)"
)
"""Names of files, lines and tools: what a comment or another folder changes."""


def binary_id(content: bytes) -> str:
    """Return 16 hexadecimal digits that are equal for binaries with the same code and data.

    ELF files of 64 bits (shared libraries, cubins) are compared by their sections, except those
    for debuggers and linkers; anything else byte by byte. The layout is that of the ELF-64 object
    file format, version 1.5.
    """
    digest = hashlib.sha256()
    try:
        for name, data in _sections(content):
            if not _ASIDE.match(name):
                digest.update(struct.pack("<II", len(name), len(data)) + name + data)
    except (struct.error, ValueError):
        digest = hashlib.sha256(content)
    return digest.hexdigest()[:16]


def launch_id(plan: object, knobs: Mapping[str, Any]) -> str:
    """Return a hash of how a binary is launched: what a header says, and the knobs named there."""
    text = repr(plan)
    named = {n: value for n, value in knobs.items() if re.search(rf"\b{re.escape(n)}\b", text)}
    return content_id(text, sorted(named.items()))


def _sections(content: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and content of each section. Raises ValueError or struct.error for no ELF-64."""
    if not content.startswith(_MAGIC):
        raise ValueError("no ELF file of 64 bits")
    header = _HEADER.unpack_from(content)
    start, size, count, names_at = header[6], header[11], header[12], header[13]
    if not count or size < _SECTION.size:
        raise ValueError("no sections")
    table = [_SECTION.unpack_from(content, start + number * size) for number in range(count)]
    names = _data(content, table[names_at])
    return [
        (names[row[0] : names.index(b"\0", row[0])], _data(content, row))
        for row in table
        if row[1] != _NO_BITS
    ]


def _data(content: bytes, row: tuple[int, ...]) -> bytes:
    return content[row[4] : row[4] + row[5]]
