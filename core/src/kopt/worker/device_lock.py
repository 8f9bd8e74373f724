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

_PATIENCE = 30.0
"""Seconds after which work is let in between two measurements."""
_PIECE = 1.0
"""Seconds of work between two occasions on which it makes way."""
_POLL = 0.005


class DeviceLock:
    """A file lock: ``exclusive`` to measure, shared for all else that runs on the device.

    Whoever waits to measure is not overtaken by work, and measurements that wait follow each other:
    what works on the device has to end once for all of them. Work that has waited for long comes in
    between two of them. A thread that works on the device may enter a second time.
    """

    def __init__(
        self, folder: Path, device: Device, *, patience: float = _PATIENCE, piece: float = _PIECE
    ) -> None:
        """In seconds: ``patience``, how long work lets measurements go first; ``piece``, how long it
        works before it makes way.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user made it
            folder.chmod(0o1777)
        name = device.uuid or "cpu"
        self._path = folder / f"{device.kind}-{name}.lock"
        # Held shared by everybody who measures or waits for it.
        self._measuring = folder / f"{device.kind}-{name}.measuring"
        # Held by whoever is next: a measurement, or work that has waited for long.
        self._next = folder / f"{device.kind}-{name}.next"
        # Held by the work that waits until nobody measures; other work is behind it.
        self._gate = folder / f"{device.kind}-{name}.gate"
        self._patience, self._piece = patience, piece
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
        with _opened(self._measuring) as measuring, _opened(self._path) as fd:
            with self._waiting():
                fcntl.flock(measuring, fcntl.LOCK_SH)
                self._take(fd, fcntl.LOCK_EX)
            yield  # closing gives back the device first, then lets work in

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the device beside other work: no measurement runs meanwhile."""
        if getattr(self._mine, "works", False):
            yield
            return
        with _opened(self._path) as fd:
            self._start_work(fd)
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
            self._start_work(fd)
            self._mine.works, self._mine.fd = True, fd

    def make_way(self) -> None:
        """Let whoever waits to measure go first, where this thread works on the device.

        Between one piece of work and the next, where it has worked for a while: who waits has to
        wait for no more than that and one piece, and work of many short pieces does not wait
        for all measurements before each.
        """
        if not getattr(self._mine, "works", False):
            return
        if time.monotonic() - self._mine.begun < self._piece:
            return
        with _opened(self._measuring) as measuring:
            if _locked(measuring):
                return  # nobody measures or waits for it
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

    def _start_work(self, fd: int) -> None:
        """Take the device beside other work: when nobody measures or waits for it, or after long."""
        until = time.monotonic() + self._patience
        with self._waiting(), _opened(self._gate) as gate, _opened(self._measuring) as measuring:
            fcntl.flock(gate, fcntl.LOCK_EX)
            while (free := _locked(measuring)) is False and time.monotonic() < until:
                time.sleep(_POLL)
            if free:
                fcntl.flock(fd, fcntl.LOCK_SH)
            else:
                self._take(fd, fcntl.LOCK_SH)
        self._mine.begun = time.monotonic()

    def _take(self, fd: int, mode: int) -> None:
        """Take the device as soon as who has it lets go, before all that come later."""
        with _opened(self._next) as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(fd, mode)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._mine.waited = self.waited + time.monotonic() - begun


def _locked(fd: int) -> bool:
    """Take a file's lock alone if nobody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file to lock it; closing it gives the lock back."""
    fd = _open(path)
    try:
        yield fd
    finally:
        os.close(fd)


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
