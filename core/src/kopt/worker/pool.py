"""Candidate processes: started before they are needed, reused while healthy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kopt.errors import CandidateError, WorkerError
from kopt.worker.forking import Forker
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import PluginRef

_MOST_USES = 64
"""A process is retired after so many candidates, whatever its health."""


@dataclass(frozen=True)
class ProcessRecipe:
    """What every candidate process of a judge is started with."""

    cache: Path
    memory_limit: int
    plugins: Sequence[PluginRef]
    """Backends, by name: a process loads them itself."""
    opening: dict[str, Any]
    """Fields of the ``open`` order: problem (without its reference), device."""
    purpose: str = ""
    """What its processes will build, so that they import ahead: see ``kopt_warm_up``."""
    start_seconds: float = 120.0
    forker: Forker | None = None
    """What has loaded the plugins for this purpose and forks its processes."""
    confined: bool = False
    """Whether its processes may write to their homes and to the cache alone."""

    def start(
        self, *, environment: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()
    ) -> CandidateProcess:
        """Start a process, which loads its plugins; ``ready`` must be called before it is used."""
        process = CandidateProcess(
            cache=self.cache, memory_limit=self.memory_limit, environment=environment,
            wrapper=wrapper, forker=self.forker, confined=self.confined,
        )  # fmt: skip
        plugins = [list(plugin) for plugin in self.plugins]
        process.begin("load", plugins=plugins, purpose=self.purpose)
        return process

    def ready(self, process: CandidateProcess, *, private: bool = False) -> CandidateProcess:
        """Wait until a process has loaded its plugins, and open the problem in it.

        Raises WorkerError: no candidate was in it yet. Return another one where a forked process
        did not load or open: then none is forked any more.
        ``private``: its tensors are copies of the judge's, each in memory of its own.
        """
        try:
            return self._opened(process, private=private)
        except WorkerError as error:
            if self.forker is None or not process.forked:
                raise
            self.forker.give_up(str(error))
        return self._opened(self.start(), private=private)

    def _opened(self, process: CandidateProcess, *, private: bool) -> CandidateProcess:
        try:
            process.finish(self.start_seconds)
            process.order("open", self.start_seconds, **self.opening, private=private)
        except CandidateError as error:
            process.kill()
            raise WorkerError(f"a candidate process did not start: {error.detail}") from error
        except WorkerError:
            process.kill()
            raise
        return process


class ProcessPool:
    """At most ``size`` processes at work, and some in waiting."""

    def __init__(self, recipe: ProcessRecipe, size: int) -> None:
        self.recipe = recipe
        self._slots = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[CandidateProcess] = []
        self._spares: list[CandidateProcess] = []

    def prestart(self, count: int = 1) -> None:
        """Have so many processes in waiting; their imports run while others work.

        Where they are forked there is nothing to wait for.
        """
        forker = self.recipe.forker
        if forker is not None and not forker.hopeless:
            return
        with self._lock:
            while len(self._spares) < count:
                self._spares.append(self.recipe.start())

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

    def close(self) -> None:
        """End the processes that nobody has."""
        with self._lock:
            left = [*self._idle, *self._spares]
            self._idle, self._spares = [], []
        for process in left:
            process.kill()

    def _take(self, fresh: bool) -> CandidateProcess:
        with self._lock:
            while self._idle and not fresh:
                process = self._idle.pop()
                if process.alive:
                    return process
                process.kill()  # it died at rest, which is not the next candidate's fault
            spare = self._spares.pop(0) if self._spares else None
        return self.recipe.ready(spare or self.recipe.start())

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
