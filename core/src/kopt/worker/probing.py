"""The judge's side of a profiler's probe: a candidate under a tool, or traced, in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kopt.errors import CandidateError, WorkerError
from kopt.model.probe import Timeline, UnderTool

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.reference import InputSet
    from kopt.worker.device_lock import DeviceLock
    from kopt.worker.pool import ProcessPool, ProcessRecipe
    from kopt.worker.process import CandidateProcess
    from kopt.worker.trial import ProcessTrial

_END_SECONDS = 60.0
"""What a tool may take to write its report after the candidate has ended."""


class Probing:
    """Runs one judge's candidates for profilers; their calls hold the device alone."""

    def __init__(
        self,
        recipe: ProcessRecipe,
        pool: ProcessPool,
        lock: DeviceLock,
        inputs: Callable[[], InputSet],
        built: Callable[[CandidateProcess, Candidate, float], ProcessTrial],
    ) -> None:
        """``inputs`` draws arguments; ``built`` builds in a process, with seconds beyond the usual."""
        self._recipe, self._pool, self._lock = recipe, pool, lock
        self._inputs, self._built = inputs, built

    def under(
        self,
        candidate: Candidate,
        command: Sequence[str],
        environment: Mapping[str, str],
        calls: int,
        seconds: float,
    ) -> UnderTool:
        """Call a candidate in a process that ``command`` starts; see kopt.model.probe.Probe."""
        start = time.monotonic()
        self._pool.prestart()  # the next thing that is asked for starts while the tool works
        fault, output = "", ""
        process = None
        try:
            process = self._recipe.start(wrapper=command, environment=environment)
            with closing(self._inputs()) as inputs:  # drawn while the process imports
                # Memory of another process is not what a tool can save, restore or account for.
                self._recipe.ready(process, private=True)
                trial = self._built(process, candidate, seconds)
                with self._lock.exclusive():
                    trial.profiled(inputs, calls)
                output = process.end(_END_SECONDS)
        except (CandidateError, WorkerError) as error:
            fault = str(error).strip() or type(error).__name__
        except OSError as error:
            fault = f"{command[0]} was not started: {error}"
        finally:
            if process is not None:
                output = process.end(_END_SECONDS) or output
        return UnderTool(fault=fault, output=output, seconds=time.monotonic() - start)

    def timeline(self, candidate: Candidate, calls: int) -> Timeline | None:
        """Trace warm calls; None where the backend cannot. Raises CandidateError."""
        with closing(self._inputs()) as inputs, self._pool.extra() as process:
            trial = self._built(process, candidate, 0.0)
            with self._lock.working():
                trial.bind(inputs)
            trial.start_tracer()
            with self._lock.exclusive():
                return trial.timeline(inputs, calls)
