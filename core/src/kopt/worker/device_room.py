"""What runs beside each other on a device waits until it has the memory for one more."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kopt.machine import memory_bytes
from kopt.model.device import Device
from kopt.worker.device_lock import DeviceLock

_PATIENCE = 900.0
"""Seconds after which a process goes on all the same: what others reserved they may not use."""
_POLL = 0.1
_OTHERS = 0.05
"""Part of the memory that is left to processes that are none of kopt's."""
_WAITS, _HOLDS = "waits", "holds"


class DeviceRoom:
    """Reserves memory of a device, by name only, for as long as this process lives.

    Each request is a locked file, so that it ends with its process however that ends. First come,
    first served, but who fits beside all that came before and still wait does not wait for them. What
    asks for more than there is gets it once nobody else has any. See kopt.model.reference.Room.
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

        What was reserved before makes way. The device's lock is let go of meanwhile. Nobody waits
        where it is not known how much there is.
        """
        self.close()
        total = self._known_total()
        if nbytes <= 0 or not total:
            return
        with self._lock.resting():
            self._wait(nbytes, int(total * (1.0 - _OTHERS)))

    @contextmanager
    def lend(self, nbytes: int) -> Iterator[bool]:
        """Reserve ``nbytes`` more meanwhile; False, and nothing is, where others hold or wait for them."""
        total = self._known_total()
        if nbytes <= 0 or not total:
            yield True
            return
        self._make_folder()
        with self._gate():
            taken = sum(each.nbytes for each in self._others())
            free = taken + nbytes <= int(total * (1.0 - _OTHERS))
            path, fd = self._ask(nbytes) if free else (None, -1)
            if path is not None:
                os.pwrite(fd, _HOLDS.encode(), 0)
        try:
            yield free
        finally:
            if path is not None:
                _give_back(path, fd)

    def make_way(self) -> None:
        """See kopt.worker.device_lock.DeviceLock.make_way."""
        self._lock.make_way()

    def close(self) -> None:
        """Give back what was reserved."""
        if self._mine is not None:
            mine, self._mine = self._mine, None
            _give_back(*mine)

    def _known_total(self) -> int:
        return (memory_bytes(self._kind) or 0) if self._total is None else self._total

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user made it
            self._folder.chmod(0o1777)

    def _ask(self, nbytes: int) -> tuple[Path, int]:
        """Put a request that waits at the end of all others."""
        last = max((each.place for each in self._others()), default=0)
        path = self._folder / f"{last + 1}-{nbytes}-{secrets.token_hex(4)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, _WAITS.encode(), 0)
        return path, fd

    def _wait(self, nbytes: int, total: int) -> None:
        self._make_folder()
        end = time.monotonic() + self._patience
        with self._gate():
            path, fd = self._mine = self._ask(nbytes)
        place = int(path.name.split("-")[0])
        while True:
            with self._gate():
                patient = time.monotonic() < end
                if not patient or _fits(place, nbytes, self._others(path), total):
                    os.pwrite(fd, _HOLDS.encode(), 0)
                    return
            time.sleep(_POLL)

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Look and take as one: nobody else does meanwhile."""
        path = self._folder / "gate"
        gate = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield
        finally:
            os.close(gate)

    def _others(self, but: Path | None = None) -> list[_Request]:
        """Return the requests of living processes; what dead ones left behind is cleared away."""
        found = (_read(path) for path in self._folder.glob("*-*-*") if path != but)
        return [each for each in found if each is not None]


def _give_back(path: Path, fd: int) -> None:
    with suppress(OSError):
        path.unlink()
    os.close(fd)


class _Request(NamedTuple):
    place: int
    """In the order of asking."""
    nbytes: int
    holds: bool


def _fits(place: int, nbytes: int, others: list[_Request], total: int) -> bool:
    """Whether a request may be met: there is room, and nobody who came before waits longer for it."""
    held = sum(each.nbytes for each in others if each.holds)
    if held and held + nbytes > total:
        return False
    before = [each for each in others if not each.holds and each.place < place]
    if not before:
        return True
    first = min(each.place for each in before)
    overtook = sum(each.nbytes for each in others if each.holds and each.place > first)
    return sum(each.nbytes for each in before) + overtook + nbytes <= total


def _read(path: Path) -> _Request | None:
    place, nbytes, _ = path.name.split("-")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # given back since
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Request(int(place), int(nbytes), os.pread(fd, 16, 0) == _HOLDS.encode())
    else:
        with suppress(OSError):  # another user's, of whom only the file is left
            path.unlink()
        return None
    finally:
        os.close(fd)
