"""One measurement per device at a time, across processes; builds on a CPU share the device."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kopt.model.device import Device


class DeviceLock:
    """A file lock: ``exclusive`` to measure, ``shared`` to build where the CPU is the device."""

    def __init__(self, folder: Path, device: Device) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user made it
            folder.chmod(0o1777)
        name = device.uuid or "cpu"
        self._path = folder / f"{device.kind}-{name}.lock"
        self._builds_disturb = device.kind == "cpu"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the device alone; waits for measurements and disturbing builds of any process."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold the device for a build: no measurement runs beside it on the same CPUs."""
        if not self._builds_disturb:
            yield
            return
        with self._held(fcntl.LOCK_SH):
            yield

    def _open(self) -> int:
        """Open for reading: that is enough to lock, and another user's file allows no more."""
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    @contextmanager
    def _held(self, mode: int) -> Iterator[None]:
        fd = self._open()
        try:
            fcntl.flock(fd, mode)
            yield
        finally:
            os.close(fd)


def default_locks() -> Path:
    """Return the folder of the device locks, the same for every user of a machine."""
    return Path(tempfile.gettempdir()) / "kopt-locks"
