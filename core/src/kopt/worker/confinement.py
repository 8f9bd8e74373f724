"""Where a candidate process may write, and whom it may signal: Linux's Landlock enforces it.

A candidate runs as the user who started kopt. Without this it could overwrite that user's files, and
those of the verifier that judges the next run. Reading is not restricted. The kernel also keeps a
confined process from attaching to one outside (ptrace, /proc/PID/mem).
Source: Documentation/userspace-api/landlock.rst of Linux.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_VERSION = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
SIGNALS_SINCE = 6
"""The version that also keeps signals from processes outside."""
_SIGNALS = 1 << 1
_WRITES = (1 << 1) | sum(1 << bit for bit in range(4, 13))
"""Writing to files, removing them and folders, making whatever a folder can hold."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
"""Moving from one folder to another (version 2), cutting off files (version 3)."""
_SHARED = ("/dev", "/proc/self")
"""Devices and shared memory; a process's own settings."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


@functools.cache
def landlock_version() -> int:
    """Return the version of Landlock's interface; 0: this system has none, and nothing is confined."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)))


def confine(writable: Sequence[Path]) -> bool:
    """Let this thread, and all that it starts, write below these folders alone.

    Return whether that is enforced. It cannot be undone. A process calls it before it has threads.
    """
    version = landlock_version()
    if not version:
        return False
    rights = _WRITES | (_REFER if version > 1 else 0) | (_TRUNCATE if version > 2 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = _Ruleset(rights, 0, _SIGNALS if version >= SIGNALS_SINCE else 0)
    libc = _libc()
    ruleset = libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    try:
        for folder in (*writable, *map(Path, _SHARED)):
            with suppress(OSError):  # what is not there needs no leave
                _allow(libc, ruleset, rights, folder)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return int(libc.syscall(_RESTRICT, ruleset, 0)) == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, rights: int, folder: Path) -> None:
    parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Rule(rights, parent)
        libc.syscall(_ADD, ruleset, _BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
