"""What runs beside each other on a device wait until it has the memory for one more."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from kopt.machine import memory_bytes
from kopt.model.device import Device
from kopt.worker.device_lock import DeviceLock

_PATIENCE = 300.0
"""Seconds after which a process goes on all the same: what others reserved they may not use."""
_POLL = 0.1
_OTHERS = 0.05
"""Part of the memory that is left to contexts and to processes that are none of kopt's."""


class DeviceRoom:
    """Reserves memory of a device, by name only, for as long as this process lives.

    A reservation is a locked file, so that it ends with its process however that ends. One that asks
    for more than there is gets it once nobody else has any. See kopt.model.reference.Room.
    """

    def __init__(
        self, folder: Path, device: Device, lock: DeviceLock, *, total: int | None = None,
        patience: float = _PATIENCE,
    ) -> None:  # fmt: skip
        """``total``: the memory in bytes, if it is known; ``patience``: how long to wait, in seconds."""
        self._folder = folder / f"{device.kind}-{device.uuid or 'cpu'}.room"
        self._kind, self._lock, self._total, self._patience = device.kind, lock, total, patience
        self._mine: tuple[Path, int] | None = None

    def reserve(self, nbytes: int) -> None:
        """Wait until ``nbytes`` are left by others; they see them as taken from then on.

        What was reserved before makes way. The device's lock is let go of meanwhile.
        """
        self.close()
        if nbytes <= 0:
            return
        total = memory_bytes(self._kind) if self._total is None else self._total
        with self._lock.resting():
            self._wait(nbytes, int(total * (1.0 - _OTHERS)))

    def close(self) -> None:
        """Give back what was reserved."""
        if self._mine is not None:
            path, fd = self._mine
            self._mine = None
            with suppress(OSError):
                path.unlink()
            os.close(fd)

    def _wait(self, nbytes: int, total: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user made it
            self._folder.chmod(0o1777)
        end = time.monotonic() + self._patience
        # Who waits holds the gate: a large one is not overtaken by small ones for ever.
        gate = _opened(self._folder / "gate")
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            while (taken := self._taken()) and taken + nbytes > total and time.monotonic() < end:
                time.sleep(_POLL)
            path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, str(nbytes).encode())
            self._mine = (path, fd)
        finally:
            os.close(gate)

    def _taken(self) -> int:
        """Return what living processes have reserved; what dead ones left behind is cleared away."""
        return sum(map(_reserved, self._folder.glob("*-*")))


def _reserved(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # given back since
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(fd, 32) or b"0")
    else:
        with suppress(OSError):  # another user's, of whom only the file is left
            path.unlink()
        return 0
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
