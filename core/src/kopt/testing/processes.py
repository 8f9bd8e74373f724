"""Finds the processes that a test left behind, and ends those that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from kopt.worker import family


def marked(marker: str) -> list[psutil.Process]:
    """Return the processes with ``marker`` in a value of their environment, zombies left out.

    What a candidate starts inherits it, however far it goes from the judge's tree. The process
    that asks is left out too.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(marker in value for value in process.environ().values()):
                found.append(process)
    return found


class Holder:
    """Another process that runs a program, which says ``held``, until it is killed."""

    def __init__(self, program: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def kill(self) -> None:
        """End it as nothing else would, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def eventually(check: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Return whether ``check`` comes true in time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def ending() -> Iterator[Callable[[], set[int]]]:
    """Lend a function that returns the candidate processes started within; they end with it.

    Those that were there before belong to other tests of this process, and live on.
    """
    before = set(family.living)

    def started() -> set[int]:
        return set(family.living) - before

    try:
        yield started
    finally:
        for pid in started():
            family.living[pid]()
