"""Other work on the device while a candidate runs: what is right only undisturbed is a race that wins."""

from __future__ import annotations

import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from kopt.machine import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.device import DeviceKind

_BYTES = 8 << 20
"""Read over and over by each thread: more than a core's own caches hold."""
_ELEMENTS = 1 << 22
_QUEUED = 16


@contextmanager
def other_work(kind: DeviceKind) -> Iterator[None]:
    """Keep the device busy from this process, on every core or on a stream of its own.

    A core's threads compete with the candidate's, which are interrupted anywhere. A GPU shares itself
    among processes by time: a candidate's kernels are interrupted, and start late, but none of ours
    runs at the same instant.
    """
    stop, started = threading.Event(), threading.Semaphore(0)
    work, count = (_launch, 1) if kind == "cuda" else (_read, usable_cpus())
    threads = [
        threading.Thread(target=_until, args=(stop, started, work()), daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            started.acquire()
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _until(stop: threading.Event, started: threading.Semaphore, work: Callable[[], None]) -> None:
    started.release()
    while not stop.is_set():
        work()


def _read() -> Callable[[], None]:
    """Return what reads memory for some milliseconds, without the interpreter's lock."""
    content = bytes(_BYTES)

    def work() -> None:
        zlib.crc32(content)

    return work


def _launch() -> Callable[[], None]:
    """Return what runs some kernels on a stream of its own and waits for them."""
    stream, values = torch.cuda.Stream(), torch.zeros(_ELEMENTS, device="cuda")
    torch.cuda.synchronize()

    def work() -> None:
        with torch.cuda.stream(stream):
            for _ in range(_QUEUED):
                values.sin_()
        stream.synchronize()

    return work
