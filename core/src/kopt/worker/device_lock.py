"""One measurement per device at a time, and nothing beside it, across processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kopt.machine import gpu_uuid
from kopt.model.device import Device, DeviceKind


class DeviceLock:
    """A file lock: ``exclusive`` to measure, shared for all else that runs on the device.

    Whoever waits to measure is not overtaken: a second lock, the gate, is held while waiting, and
    everybody passes it. A thread that works on the device may enter a second time.
    """

    def __init__(self, folder: Path, device: Device) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user made it
            folder.chmod(0o1777)
        name = device.uuid or "cpu"
        self._path = folder / f"{device.kind}-{name}.lock"
        self._gate = folder / f"{device.kind}-{name}.gate"
        self._builds_disturb = device.kind == "cpu"
        self._mine = threading.local()

    @property
    def waited(self) -> float:
        """Seconds that this thread has waited for others on the device."""
        return float(getattr(self._mine, "waited", 0.0))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the device alone; waits for measurements and work of any process.

        Raises RuntimeError in a thread that works on the device: it would wait for itself.
        """
        if getattr(self._mine, "works", False):
            raise RuntimeError("a thread that works on a device cannot wait for it to be idle")
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the device beside other work: no measurement runs meanwhile."""
        if getattr(self._mine, "works", False):
            yield
            return
        with self._held(fcntl.LOCK_SH) as fd:
            self._mine.works, self._mine.fd = True, fd
            try:
                yield
            finally:
                self._mine.works = False

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let measurements through while a thread that works on the device waits for something else."""
        if not getattr(self._mine, "works", False):
            yield
            return
        fd = self._mine.fd
        fcntl.flock(fd, fcntl.LOCK_UN)
        self._mine.works = False
        try:
            yield
        finally:
            self._pass_gate(fd, fcntl.LOCK_SH)
            self._mine.works, self._mine.fd = True, fd

    def make_way(self) -> None:
        """Let whoever waits to measure go first, where this thread works on the device.

        Between one piece of work and the next: who waits then has to wait for one piece only.
        """
        if not getattr(self._mine, "works", False):
            return
        gate = _open(self._gate)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return  # nobody waits
        except BlockingIOError:
            pass
        finally:
            os.close(gate)
        with self.resting():
            pass

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold the device for a build: that disturbs a measurement on the same CPUs only."""
        if not self._builds_disturb:
            yield
            return
        with self.working():
            yield

    @contextmanager
    def _held(self, mode: int) -> Iterator[int]:
        fd = _open(self._path)
        try:
            self._pass_gate(fd, mode)
            yield fd
        finally:
            os.close(fd)

    def _pass_gate(self, fd: int, mode: int) -> None:
        begun, gate = time.monotonic(), _open(self._gate)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(fd, mode)
        finally:
            os.close(gate)
            self._mine.waited = self.waited + time.monotonic() - begun


def _open(path: Path) -> int:
    """Open for reading: that is enough to lock, and another user's file allows no more."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def device_of_lock(kind: DeviceKind) -> Device:
    """Return a device known by what its lock goes by, before any framework has looked at it."""
    return Device(
        kind=kind, name="", architecture="", units=1, memory_bytes=0, cache_bytes=0,
        uuid=gpu_uuid() if kind == "cuda" else "",
    )  # fmt: skip


def default_locks() -> Path:
    """Return the folder of the device locks, the same for every user of a machine."""
    return Path(tempfile.gettempdir()) / "kopt-locks"
