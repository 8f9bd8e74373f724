"""What a shared library asks of other libraries, read from its ELF file.

The dynamic segment is read, not the section headers: a library also loads without those.
"""

from __future__ import annotations

import re
import struct
from itertools import takewhile

_LOAD, _DYNAMIC = 1, 2
_NULL, _HASH, _STRTAB, _SYMTAB, _GNU_HASH = 0, 4, 5, 6, 0x6FFFFEF5
_SYMBOL_BYTES = 24

_FOREIGN = re.compile(
    r"""
    (cblas|catlas|openblas|mkl|MKL|dnnl|armpl|bli|clblast|fftwf?|xnn|aoti_torch)_ | LAPACKE_
    | (cublas|cudnn|cufft|cusparse|cusolver|nvrtc)\w+
    | vm?[sdcz][A-Z]\w+                                     # MKL's functions on vectors
    | [sdczhi]?[sdcz](gem[mv]|gem[mv]_batch|gemm3m|gemmt|sym[mv]|hem[mv]|syr2?k?|her2?k?|tr[ms][mv]
        |geru?c?|gb?mv|axpby?|axpy|dotu?c?|scal|nrm2|asum|swap|copy|rot[gm]*|amax|amin)_?$
    | [sdcz](ge|gb|gt|po|pb|pp|pt|sy|sp|st|sb|he|hp|hb|tr|tb|tp|or|un|la)[a-z0-9]{2,4}_$
    | _ZN[KVO]*(2at|3c10|5torch|5caffe2|4dnnl|4onednn)\d
    | _?Py[A-Z_]\w+                                         # back into the interpreter
    | (dlopen|dlmopen|dlsym|dlvsym|system|popen|fork|vfork|posix_spawnp?|(f|)exec[lv]p?e?)$
    """,
    re.VERBOSE,
)


def foreign_symbols(content: bytes) -> tuple[str, ...]:
    """Return the undefined symbols that belong to a compute library or reach around the linker."""
    return tuple(name for name in undefined_symbols(content) if _FOREIGN.match(name))


def undefined_symbols(content: bytes) -> tuple[str, ...]:
    """Return the names that a 64-bit little-endian ELF library leaves to others, sorted.

    Nothing for files of another form.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        return ()
    segments = _segments(content)
    tags = _dynamic(content, segments)
    if _SYMTAB not in tags or _STRTAB not in tags:
        return ()
    table, strings = (_offset(segments, tags[tag]) for tag in (_SYMTAB, _STRTAB))
    found = set()
    for index in range(1, _symbol_count(content, segments, tags)):
        name, _, _, section = struct.unpack_from("<IBBH", content, table + index * _SYMBOL_BYTES)
        if section == 0:
            start = strings + name
            found.add(content[start : content.index(b"\0", start)].decode(errors="replace"))
    return tuple(sorted(found - {""}))


def _segments(content: bytes) -> list[tuple[int, int, int, int]]:
    """Return type, file offset, address and size in the file of every segment."""
    (start,) = struct.unpack_from("<Q", content, 32)
    width, count = struct.unpack_from("<HH", content, 54)
    found = []
    for index in range(count):
        kind, _, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", content, start + index * width
        )
        found.append((kind, offset, address, size))
    return found


def _dynamic(content: bytes, segments: list[tuple[int, int, int, int]]) -> dict[int, int]:
    for kind, offset, _, size in segments:
        if kind == _DYNAMIC:
            pairs = struct.iter_unpack("<QQ", content[offset : offset + size // 16 * 16])
            return dict(takewhile(lambda pair: pair[0] != _NULL, pairs))
    return {}


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return where in the file the byte at an address is."""
    for kind, offset, start, size in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError(f"address {address:#x} lies in no segment of the library")


def _symbol_count(
    content: bytes, segments: list[tuple[int, int, int, int]], tags: dict[int, int]
) -> int:
    """Return how many symbols there are: undefined ones come before all that are hashed."""
    counts = [0]
    if _HASH in tags:
        counts += struct.unpack_from("<I", content, _offset(segments, tags[_HASH]) + 4)
    if _GNU_HASH in tags:
        counts += struct.unpack_from("<I", content, _offset(segments, tags[_GNU_HASH]) + 4)
    return max(counts)
