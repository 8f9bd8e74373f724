"""Shared memory by anonymous file (memfd): the judge makes it, candidate processes map it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kopt.model.values import TensorRef

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
GUARD_BYTES = 4096
"""Canary bytes before and after a tensor that has no guard pages."""
ALIGNMENT = 64
"""Of the first byte of a tensor between guard pages."""
_PROT_NONE = 0
_ids = itertools.count(1)


def span_bytes(ref: TensorRef) -> int:
    """Return the bytes from the first to the last element."""
    if 0 in ref.shape:
        return 0
    last = sum((n - 1) * stride for n, stride in zip(ref.shape, ref.strides, strict=True))
    return (last + 1) * ITEM_BYTES[ref.dtype]


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies in a segment: guard page, padding, payload, padding, guard page.

    The payload is aligned, and ends less than ``ALIGNMENT`` bytes before the last guard page.
    """

    nbytes: int
    """Of the whole segment; whole pages."""
    start: int
    """Offset of the payload."""
    guards: tuple[tuple[int, int], ...]
    """Offset and size of what a candidate process may not touch at all."""

    @classmethod
    def around(cls, payload: int) -> Layout:
        """Lay out a payload of so many bytes."""
        page = mmap.PAGESIZE
        padded = -(-payload // ALIGNMENT) * ALIGNMENT
        last = page + -(-padded // page) * page
        return cls(last + page, last - padded, ((0, page), (last, page)))


class Segment:
    """Judge-owned bytes that another process can map; freed when both sides let go."""

    def __init__(self, nbytes: int, guards: tuple[tuple[int, int], ...] = ()) -> None:
        """``guards``: offset and size of whole pages that only the judge may touch."""
        self.id = next(_ids)
        self.guards = guards
        self.nbytes = max(nbytes, 1)
        self.fd = _anonymous_file(self.nbytes)
        self.map = mmap.mmap(self.fd, self.nbytes)

    def announcement(
        self, alive: Callable[[], bool] | None = None
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return what a candidate process must be told, and the descriptor to send along.

        ``alive`` is of no interest: the system takes back what a process had mapped.
        """
        told = {"id": self.id, "kind": "cpu", "nbytes": self.nbytes, "guards": self.guards}
        return told, (self.fd,)

    def close(self) -> None:
        """Let go; the mapping stays while views of it live."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        with contextlib.suppress(BufferError):  # a tensor still looks at it: closed with that
            self.map.close()


def _anonymous_file(nbytes: int) -> int:
    if sys.platform == "linux":
        fd = os.memfd_create("kopt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, nbytes)
        # Whoever maps it cannot shrink it: touching what is gone would kill the judge.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return fd
    fd, path = tempfile.mkstemp(prefix="kopt-")
    os.unlink(path)  # noqa: PTH108 - a descriptor without a name
    os.ftruncate(fd, nbytes)
    return fd


@functools.cache
def _mprotect() -> Callable[[int, int, int], int] | None:
    try:
        found = ctypes.CDLL(None).mprotect
    except (AttributeError, OSError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    protect: Callable[[int, int, int], int] = found
    return protect


def _forbid(mapped: mmap.mmap, guards: Sequence[Sequence[int]]) -> None:
    """Let every access to the guard pages of this mapping fault.

    Where the system cannot do that they stay accessible: the judge still sees writes to them.
    """
    protect = _mprotect()
    if protect is not None:
        base = _address(mapped)
        for offset, nbytes in guards:
            protect(base + offset, nbytes, _PROT_NONE)


def _address(mapped: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


class MappedMemory:
    """The candidate process's view of announced segments; see kopt.model.executable.Memory."""

    def __init__(self) -> None:
        self.private = False
        self._maps: dict[int, mmap.mmap] = {}
        self._handles: dict[int, tuple[object, ...]] = {}
        self._copied: dict[int, tuple[mmap.mmap, str]] = {}

    def attach(self, announcement: dict[str, Any], fds: list[int]) -> None:
        """Map a segment that the judge announced."""
        if announcement["kind"] == "cpu":
            mapped = mmap.mmap(fds[0], announcement["nbytes"])
            os.close(fds[0])
            _forbid(mapped, announcement.get("guards", ()))
            self._maps[announcement["id"]] = mapped
        elif announcement["kind"] == "copied":
            mapped = mmap.mmap(fds[0], announcement["nbytes"])
            os.close(fds[0])
            self._copied[announcement["id"]] = mapped, announcement["device"]
        else:
            self._handles[announcement["id"]] = tuple(announcement["handle"])

    def detach(self, segment: int) -> None:
        """Forget a segment."""
        self._handles.pop(segment, None)
        copied, _ = self._copied.pop(segment, (None, ""))
        mapped = self._maps.pop(segment, copied)
        if mapped is not None:
            with contextlib.suppress(BufferError):  # still viewed by a candidate's tensor
                mapped.close()

    def is_cpu(self, ref: TensorRef) -> bool:
        """Whether the tensor lies in CPU memory."""
        return ref.segment in self._maps

    def buffer(self, ref: TensorRef) -> memoryview:
        """Return the writable bytes of a CPU tensor."""
        view = memoryview(self._maps[ref.segment])
        return view[ref.offset : ref.offset + span_bytes(ref)]

    def address(self, ref: TensorRef) -> int:
        """Return the address of a CPU tensor's first element."""
        return _address(self._maps[ref.segment]) + ref.offset

    def copied(self, segment: int) -> tuple[memoryview, str] | None:
        """Return a segment's bytes on the host and its device, where this process has a copy of it."""
        mapped, device = self._copied.get(segment, (None, ""))
        return None if mapped is None else (memoryview(mapped), device)

    def handle(self, segment: int) -> tuple[object, ...]:
        """Return the CUDA IPC handle of a segment."""
        return self._handles[segment]
