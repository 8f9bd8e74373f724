"""Candidate processes: started before they are needed, reused while healthy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kopt.errors import CandidateError, WorkerError
from kopt.worker.process import CandidateProcess

_MOST_USES = 64
"""A process is retired after so many candidates, whatever its health."""


@dataclass(frozen=True)
class ProcessRecipe:
    """What every candidate process of a judge is started with."""

    cache: Path
    memory_limit: int
    opening: dict[str, Any]
    """Fields of the ``open`` order: problem (without its reference), device, plugins."""
    start_seconds: float = 120.0

    def start(
        self, *, environment: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()
    ) -> CandidateProcess:
        """Start a process; ``ready`` must be called before it is used."""
        return CandidateProcess(
            cache=self.cache, memory_limit=self.memory_limit, environment=environment,
            wrapper=wrapper,
        )  # fmt: skip

    def ready(self, process: CandidateProcess, *, private: bool = False) -> CandidateProcess:
        """Have a process load its plugins. Raises WorkerError: no candidate was in it yet.

        ``private``: its tensors are copies of the judge's, each in memory of its own.
        """
        try:
            process.order("open", self.start_seconds, **self.opening, private=private)
        except CandidateError as error:
            process.kill()
            raise WorkerError(f"a candidate process did not start: {error.detail}") from error
        except WorkerError:
            process.kill()
            raise
        return process


class ProcessPool:
    """At most ``size`` processes at work, and one in waiting."""

    def __init__(self, recipe: ProcessRecipe, size: int) -> None:
        self._recipe = recipe
        self._slots = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[CandidateProcess] = []
        self._spare: CandidateProcess | None = None

    def prestart(self) -> None:
        """Start one process ahead; its imports run while others work."""
        with self._lock:
            if self._spare is None:
                self._spare = self._recipe.start()

    @contextmanager
    def process(self, *, fresh: bool = False) -> Iterator[CandidateProcess]:
        """Lend a process; it goes back if it is still healthy, and is replaced if not."""
        with self._slots:
            process = self._take(fresh)
            try:
                yield process
            finally:
                self._give_back(process, keep=not fresh)

    @contextmanager
    def extra(self) -> Iterator[CandidateProcess]:
        """Lend a fresh process beyond the pool's size, to one who already has one."""
        process = self._take(fresh=True)
        try:
            yield process
        finally:
            process.kill()

    def _take(self, fresh: bool) -> CandidateProcess:
        with self._lock:
            while self._idle and not fresh:
                process = self._idle.pop()
                if process.alive:
                    return process
                process.kill()  # it died at rest, which is not the next candidate's fault
            spare, self._spare = self._spare, None
        return self._recipe.ready(spare or self._recipe.start())

    def _give_back(self, process: CandidateProcess, *, keep: bool) -> None:
        process.uses += 1
        if keep and process.uses < _MOST_USES and _cleared(process):
            with self._lock:
                self._idle.append(process)
            return
        process.kill()
        self.prestart()


def _cleared(process: CandidateProcess) -> bool:
    """Drop what the last candidate left in a process; False if it is not healthy."""
    if not process.alive or process.tainted:
        return False
    try:
        process.order("reset", 10.0)
        process.order("detach", 10.0, segments=sorted(process.attached))
    except (CandidateError, WorkerError):
        return False
    process.attached.clear()
    # Who starts processes and leaves them running is not trusted with another candidate.
    return not process.kill_descendants() and process.alive
