"""Device memory of the judge that other processes open through CUDA IPC, and when it is free again.

PyTorch counts who has opened a storage: what is closed while its count is not zero stays taken. The
count is one for each announcement, and whoever opens takes one off when it closes. It has no sign, so
that a process which opens twice what it was told once would keep it from zero for good; and a process
that dies takes nothing off.
"""

from __future__ import annotations

import base64
import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from kopt.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_ID = 1 << 40
"""Of segments in device memory; those in a CPU's have smaller ones."""
_ids = itertools.count(FIRST_ID)


def next_id() -> int:
    """Return the id of another segment in device memory."""
    return next(_ids)


_COUNTS = Path("/dev/shm")
"""Where the system puts the shared memory that PyTorch counts in."""
_HEADER = 64
"""Bytes before the counts in such a file: ``map_alloc_alignment`` in ATen/MapAllocator.cpp."""
_WORD = 8


class Loan:
    """One announcement of a segment: PyTorch's count of it, and whether the borrower still runs."""

    def __init__(self, file: Path, number: int, alive: Callable[[], bool]) -> None:
        """``file``: of the counts; ``number``: the place of this one among them."""
        self._file, self._at, self._alive = file, _HEADER + _WORD * number, alive

    def count(self) -> int:
        """Return what PyTorch counts; 0 where it has put the count away."""
        with suppress(OSError), self._file.open("rb") as file:
            return int.from_bytes(os.pread(file.fileno(), _WORD, self._at), "little")
        return 0

    def is_lost(self) -> bool:
        """Whether it was not given back, and never will be: its process is gone."""
        return bool(self.count()) and not self._alive()

    def write_off(self) -> None:
        """Let PyTorch know that it is over."""
        with suppress(OSError), self._file.open("r+b") as file:
            os.pwrite(file.fileno(), bytes(_WORD), self._at)


_NOT_SHARED = (
    "the driver no longer shares device memory between processes ({}); set KOPT_CUDA_IPC=off, and it "
    "is copied by way of the host, or use --device cpu"
)
_owed: list[Loan] = []
"""Loans of closed segments that had not been given back when they were last looked at."""
_lock = threading.Lock()


def write_off_lost() -> None:
    """Free what closed segments still take, as processes had them open that are gone since."""
    with _lock:
        lost = [loan for loan in _owed if loan.is_lost()]
        for loan in lost:
            loan.write_off()
        _owed[:] = [loan for loan in _owed if loan.count()]
    if lost:
        torch.cuda.ipc_collect()


class CudaSegment:
    """Device memory of the judge, opened elsewhere through CUDA IPC."""

    def __init__(self, nbytes: int) -> None:
        write_off_lost()
        self.id = next_id()
        self.nbytes = nbytes
        self.bytes = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._loans: list[Loan] = []

    def announcement(
        self, alive: Callable[[], bool] | None = None
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the IPC handle; there is no descriptor to send.

        Raises DeviceError where the system has no CUDA IPC.
        """
        try:
            handle = self.bytes.untyped_storage()._share_cuda_()
        except RuntimeError as error:
            raise DeviceError(
                _NOT_SHARED.format(str(error).strip().split("\n")[0][:200])
            ) from error
        self._loans = [loan for loan in self._loans if loan.count()]
        if alive is not None:
            loan = Loan(_COUNTS / handle[4].decode().lstrip("/"), handle[5], alive)
            if loan.count() == 1:  # else PyTorch counts in another way, and is left alone
                self._loans.append(loan)
        encoded = [
            {"bytes": base64.b64encode(part).decode()} if isinstance(part, bytes) else part
            for part in handle
        ]
        return {"id": self.id, "kind": "cuda", "nbytes": self.nbytes, "handle": encoded}, ()

    def close(self) -> None:
        """Give the memory back to the allocator; what a living process has open it keeps."""
        with _lock:
            _owed.extend(self._loans)
        self._loans = []
        write_off_lost()
        self.bytes = torch.empty(0, dtype=torch.uint8)


class Opened:
    """A segment of the judge's, open in this process."""

    def __init__(self, handle: tuple[object, ...]) -> None:
        parts = [
            base64.b64decode(part["bytes"]) if isinstance(part, dict) else part for part in handle
        ]
        torch.cuda.init()
        storage = torch.UntypedStorage._new_shared_cuda(*parts)
        tensor = torch.empty(0, dtype=torch.uint8, device="cuda")
        self.bytes = tensor.set_(storage, 0, (storage.nbytes(),), (1,))


_opened: WeakValueDictionary[int, Opened] = WeakValueDictionary()


def open_segment(segment: int, handle: tuple[object, ...]) -> Opened:
    """Return a segment that was announced to this process, opened once for all who ask."""
    found = _opened.get(segment)
    if found is None:
        found = _opened[segment] = Opened(handle)
    return found
