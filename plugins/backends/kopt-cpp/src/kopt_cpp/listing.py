"""What a C++ source was compiled to: assembly, and how large code and data are."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kopt_cpp.compiler import compile_assembly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt_cpp.compiler import Compiler

SOURCE = "kernel.cpp"
_SECTION = struct.Struct("<IIQQQQ")
_WRITABLE, _LOADED, _CODE = 1, 2, 4


def assembly(compiler: Compiler, source: str, flags: list[str]) -> str:
    """Return the compiler's assembly of a source. Raises CandidateError."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / SOURCE).write_text(source, encoding="utf-8")
        compile_assembly(compiler, folder / SOURCE, folder / "kernel.s", flags)
        return (folder / "kernel.s").read_text(encoding="utf-8", errors="replace")


def sizes(library: bytes) -> dict[str, int]:
    """Return the bytes of a shared library, of its code and of its writable data.

    Only the former where it is no 64-bit little-endian ELF file with a table of sections. Source:
    the ELF-64 object file format, version 1.5.
    """
    found = {"library_bytes": len(library)}
    if library[:6] != b"\x7fELF\x02\x01":
        return found
    sections = list(_sections(library))
    if sections:
        found["text_bytes"] = sum(size for flags, size in sections if flags & _CODE)
        found["data_bytes"] = sum(size for flags, size in sections if flags & _WRITABLE)
    return found


def _sections(library: bytes) -> Iterator[tuple[int, int]]:
    """Yield flags and size of each section that is loaded."""
    (start,) = struct.unpack_from("<Q", library, 40)
    width, count = struct.unpack_from("<HH", library, 58)
    for index in range(count):
        _, _, flags, _, _, size = _SECTION.unpack_from(library, start + index * width)
        if flags & _LOADED:
            yield flags, size
