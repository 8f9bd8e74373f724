"""What the operating system is asked to enforce on worker processes."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def die_with_parent(how: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent ends (Linux)."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:  # it ended before the call above
        os.kill(os.getpid(), signal.SIGKILL)


_state = {"adopting": False}


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _state["adopting"] = True


def adopting() -> bool:
    """Whether this process called ``adopt_orphans``."""
    return _state["adopting"]


@contextmanager
def adopting_meanwhile() -> Iterator[None]:
    """Adopt orphans inside it; those of later are somebody else's again (Linux)."""
    before = adopting()
    adopt_orphans()
    try:
        yield
    finally:
        if not before:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)
            _state["adopting"] = False


def allow_many_files() -> None:
    """Lift the soft limit on open descriptors: each shared tensor of the judge has one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # macOS refuses an unlimited number: the soft limit stays


_LARGEST_FILE = 2 << 30
"""Bytes: what an endless printer may write before it is stopped."""


def limit_resources(nbytes: int) -> None:
    """Cap private memory (0: no cap) and file size, forbid core dumps, offer it to the OOM killer."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if nbytes:  # the soft limit alone: sanitizers reserve far more than they use, and lift it
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (nbytes, hard))
    if sys.platform == "linux":
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:  # noqa: PTH123
                handle.write("1000")
        except OSError:
            return  # a container that forbids it: the cap above still holds
