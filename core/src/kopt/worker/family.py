"""The process tree below a judge: who is meant to live, and the end of everyone else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from kopt.errors import WorkerError
from kopt.worker.limits import adopting

living: dict[int, Callable[[], None]] = {}
"""Candidate processes that are meant to live, by id, and how each is ended."""
births = threading.Lock()
"""Held while a child is started or orphans are looked for."""
_closed = False
_endings = threading.Condition()
_under_way = 0
_MOST_SECONDS = 5.0
"""How long the judge's end waits for processes that another thread is ending."""
_MOST_ROUNDS = 50
"""A candidate may start processes faster than they are found; each round kills a generation."""


def descendants(pid: int) -> list[psutil.Process]:
    """Return the children of a process, and theirs, as far as they are still below it."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def kill_all(processes: list[psutil.Process]) -> bool:
    """Kill processes and wait for their end; return whether there were any."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    if processes:
        psutil.wait_procs(processes, timeout=2.0)
    return bool(processes)


@contextmanager
def ending() -> Iterator[None]:
    """End a process and remove its files inside it: the judge does not end in between."""
    global _under_way
    with _endings:
        _under_way += 1
    try:
        yield
    finally:
        with _endings:
            _under_way -= 1
            _endings.notify_all()


def end(pid: int) -> None:
    """Kill the group of a candidate process and whoever left that group but not the tree."""
    family = descendants(pid)
    with suppress(ProcessLookupError):  # already gone
        os.killpg(pid, signal.SIGKILL)
    kill_all(family)


def reap_orphans() -> bool:
    """Kill children of this process that no living candidate accounts for; were there any?

    The judge adopts what a killed candidate left behind, in whatever session it hid. Does nothing
    in a process that adopts no orphans: its other children are none of our business.
    """
    if not adopting():
        return False
    any_found = False
    for _ in range(_MOST_ROUNDS):
        with births:
            orphans = [child for child in psutil.Process().children() if child.pid not in living]
        if not orphans:
            break
        any_found = True
        kill_all([p for orphan in orphans for p in [*descendants(orphan.pid), orphan]])
    return any_found


def close() -> None:
    """Let no more be born, and end all that live: the judge is about to end."""
    global _closed
    with births:
        _closed = True
    end_all()
    with _endings:
        _endings.wait_for(lambda: not _under_way, _MOST_SECONDS)


def ensure_open() -> None:
    """Raise WorkerError after ``close``; ask while holding ``births``."""
    if _closed:
        raise WorkerError("the judge is ending; it starts no more processes")


def end_all() -> None:
    """Kill every candidate process and whatever they left behind."""
    for kill in list(living.values()):
        kill()
    reap_orphans()
