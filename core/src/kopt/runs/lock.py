"""The lock of a run's folder: one process at a time writes to it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from kopt.errors import RunStoreError

_LOCK = "lock"


def lock_run(path: Path) -> int:
    """Take a run's lock and return its handle; it ends with the process, however that ends."""
    handle = -1
    try:
        handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _flock(handle)
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise RunStoreError(
            f"run {path.name} is in use by process {holder}; wait for it, or end it first"
        ) from None
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise RunStoreError(f"run {path.name} cannot be locked: {error}") from error
    return handle


def _flock(handle: int, patience: float = 0.5) -> None:
    """Lock alone. Raises BlockingIOError where it is held for longer than a look at it takes."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # it may be list_runs asking whether anybody holds it


def is_held(path: Path) -> bool:
    """Whether a process holds a run's lock."""
    try:
        handle = os.open(path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
