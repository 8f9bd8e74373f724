"""One built candidate in its process: bound, run and timed on the judge's inputs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

from kopt.errors import CandidateError, WorkerError
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Build
from kopt.model.origin import Origin
from kopt.model.probe import Timeline
from kopt.model.problem import Problem
from kopt.model.reference import CopiedSegment, InputSet, Reference
from kopt.model.sanitizer import SANITIZER_SECONDS, SanitizerReport
from kopt.model.values import CallClaim, CallSpec
from kopt.stages.measuring import BlockTime
from kopt.worker.process import CandidateProcess

_call_ids = itertools.count(1)
_EMPTY_ORDERS = 5
_TRACED_CALLS = 5
_GARBAGE = 0xFF
_OBSERVING_SECONDS = 30.0
"""What starting a device's tracer may take beyond the call."""
_MOST_QUEUED = 256
"""Launches that a device's queue holds for sure while it is paused."""


class ProcessTrial:
    """See kopt.model.trial.Trial; also binds inputs for timing."""

    def __init__(
        self,
        process: CandidateProcess,
        reference: Reference,
        candidate: Candidate,
        build: Build,
        *,
        seed: int,
        depth: Literal["search", "winner"],
        run_seconds: float,
        twin: Callable[[], AbstractContextManager[ProcessTrial]],
        instrumented: Callable[[Candidate, InputSet], SanitizerReport] | None = None,
        ahead: Callable[[CallSpec], None] | None = None,
        resting: Callable[[], AbstractContextManager[None]] = nullcontext,
        make_way: Callable[[], None] = lambda: None,
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``twin`` lends the same candidate in another process.

        ``instrumented`` runs it under the device's own sanitizer; where it is None, the executable
        is asked for an instrumented build. ``ahead`` compiles what a call launches, elsewhere.
        ``resting`` lets measurements through while the process does what needs no device;
        ``make_way``, called before each run, those that wait; ``waited`` says how long that took.
        """
        self.problem: Problem = reference.problem
        self.candidate = candidate
        self.reference = reference
        self.build = build
        self.seed = seed
        self.depth: Literal["search", "winner"] = depth
        self._process = process
        self._run_seconds = run_seconds
        self._bound: dict[int, tuple[InputSet, int]] = {}
        self.twin = twin
        self._instrumented = instrumented
        self._ahead = ahead
        self._resting = resting
        self._make_way = make_way
        self._waited = waited
        self.setup_ms: float | None = None
        """Wall clock of the first binding and call."""

    @property
    def alive(self) -> bool:
        """Whether its process still takes orders."""
        return self._process.alive

    @property
    def waited(self) -> float:
        """Seconds that this thread has waited for others on the device."""
        return self._waited()

    def release_all(self) -> None:
        """Release every bound input set."""
        for inputs, _ in list(self._bound.values()):
            self.release(inputs)

    def order(self, op: str, **fields: Any) -> dict[str, Any]:
        """Give this candidate's process an order within the run deadline."""
        return self._process.order(op, self._run_seconds, **fields)

    def bind(self, inputs: InputSet) -> int:
        """Make inputs known to the process and return the id of the bound call."""
        if id(inputs) not in self._bound:
            process = self._process
            for segment in inputs.segments:
                if segment.id not in process.attached:
                    announcement, fds = segment.announcement(lambda: process.alive)
                    process.order("attach", self._run_seconds, fds, segment=announcement)
                    process.attached.add(segment.id)
            call_id = next(_call_ids)
            self.order("bind", key=self.candidate.id, call_id=call_id, call=inputs.call.to_json())
            self._bound[id(inputs)] = inputs, call_id
        return self._bound[id(inputs)][1]

    def fetch(self, *inputs: InputSet) -> None:
        """Have the process take the content of memory that it has a copy of."""
        if segments := _copied(inputs):
            for segment in segments:
                segment.push()
            self.order("fetch", key=self.candidate.id, segments=[s.id for s in segments])

    def store(self, *inputs: InputSet) -> None:
        """Take the content of memory that the process has a copy of."""
        if segments := _copied(inputs):
            self.order("store", key=self.candidate.id, segments=[s.id for s in segments])
            for segment in segments:
                segment.pull()

    @contextmanager
    def _exchanged(self, inputs: InputSet) -> Iterator[int]:
        """Bind inputs and yield the call's id; content that is copied goes there and back."""
        call_id = self.bind(inputs)
        self.fetch(inputs)
        yield call_id
        self.store(inputs)

    def release(self, inputs: InputSet) -> None:
        """Have the process forget inputs, so that their memory can be given back."""
        _, call_id = self._bound.pop(id(inputs), (inputs, 0))
        segments = [s.id for s in inputs.segments if s.id in self._process.attached]
        self.order("release", calls=[call_id], segments=segments)
        self._process.attached.difference_update(segments)

    def settle(self, inputs: InputSet) -> bool:
        """Release inputs of a call that failed; whether the process can be asked again."""
        try:
            self.order("settle")
            self.release(inputs)
        except (CandidateError, WorkerError):
            return False
        return self.alive

    def prepare(self, inputs: InputSet) -> None:
        """Have what a call launches compiled beside other work on the device; nothing runs."""
        if self._ahead is not None:
            self._ahead(inputs.call)

    def first_launch(self, inputs: InputSet, locks: Path) -> None:
        """Launch what compiles at its first call; it takes the device's lock itself, in turns."""
        with self._exchanged(inputs) as call_id:
            self.order("first-launch", call_id=call_id, locks=str(locks))

    def run(self, inputs: InputSet, launches: int = 1) -> CallClaim:
        """Launch, wait, and have the results put into ``inputs.outputs``."""
        self._make_way()
        start = time.perf_counter()
        with self._exchanged(inputs) as call_id:
            reply = self.order("run", call_id=call_id, launches=launches)
        if self.setup_ms is None:
            self.setup_ms = (time.perf_counter() - start) * 1e3
        self.build = self._process.claim("run", reply, "build", Build)
        return self._process.claim("run", reply, "claim", CallClaim)

    def in_a_row(self, *inputs: InputSet) -> list[CallClaim]:
        """Launch on each, and only then put the results of all into their outputs."""
        calls = [self.bind(each) for each in inputs]
        self.fetch(*inputs)
        self.order("time", calls=calls, launches=len(calls), device_clock=False)
        return [self.collect(each) for each in inputs]

    def collect(self, inputs: InputSet) -> CallClaim:
        """Have what the last timed launch gave put into ``inputs.outputs``."""
        reply = self.order("collect", call_id=self.bind(inputs))
        self.store(inputs)
        return self._process.claim("collect", reply, "claim", CallClaim)

    def start_tracer(self) -> None:
        """Have the process load what observing and tracing take; nothing runs on the device."""
        self._process.order("start-tracer", _OBSERVING_SECONDS, key=self.candidate.id)

    def origin(self, inputs: InputSet) -> Origin | None:
        """Run once under observation; None where the backend cannot tell what a call uses."""
        seconds = self._run_seconds + _OBSERVING_SECONDS
        with self._resting():
            self.start_tracer()
        with self._exchanged(inputs) as call_id:
            reply = self._process.order("origin", seconds, call_id=call_id)
        if reply.get("origin", ...) is None:
            return None
        return self._process.claim("origin", reply, "origin", Origin)

    def profiled(self, inputs: InputSet, calls: int) -> None:
        """Call once, then ``calls`` times between the start and the stop of CUDA's profiler."""
        with self._exchanged(inputs) as call_id:
            self.order("profiled", call_id=call_id, calls=calls)

    def timeline(self, inputs: InputSet, calls: int) -> Timeline | None:
        """Trace warm calls; None where the backend cannot."""
        seconds = self._run_seconds + _OBSERVING_SECONDS
        with self._exchanged(inputs) as call_id:
            reply = self._process.order("timeline", seconds, call_id=call_id, calls=calls)
        if reply.get("timeline", ...) is None:
            return None
        return self._process.claim("timeline", reply, "timeline", Timeline)

    def sanitize(self, inputs: InputSet) -> SanitizerReport | None:
        """Run one call under a sanitizer; None where neither device nor backend has one."""
        if self._instrumented is not None:
            return self._instrumented(self.candidate, inputs)
        seconds = self._run_seconds + SANITIZER_SECONDS
        with self._exchanged(inputs) as call_id:
            reply = self._process.order("sanitize", seconds, key=self.candidate.id, call_id=call_id)
        if reply.get("report", ...) is None:
            return None
        return self._process.claim("sanitize", reply, "report", SanitizerReport)

    def device_time(self, reply: dict[str, Any], wall_ms: float) -> float | None:
        """Return the device time that an answer claims, at most ``wall_ms``.

        Raises CandidateError where it claims what no clock can show.
        """
        claimed = reply.get("device_ms")
        if claimed is None:
            return None
        if not isinstance(claimed, int | float) or not math.isfinite(claimed):
            raise self._process.forged("time")
        return min(float(claimed), wall_ms)


class TimedTrial:
    """A trial's launches over rotating inputs; see kopt.stages.measuring.Subject."""

    def __init__(
        self, trial: ProcessTrial, inputs: Sequence[InputSet], *, large: bool = False
    ) -> None:
        """``large``: whether results of other calls of its process make way for its own."""
        self._trial = trial
        self._inputs = inputs
        self._large = large
        self._calls = [trial.bind(each) for each in inputs]
        trial.fetch(*inputs)
        self._device_clock = trial.reference.device.kind == "cuda"
        self._in_place = bool(trial.problem.mutates)
        self._turn = 0
        self._empty_ms = min(self._order_ms(0, device_clock=False)[0] for _ in range(_EMPTY_ORDERS))

    @property
    def most_launches(self) -> int:
        """One where the candidate changes its inputs: they are restored between blocks."""
        if self._in_place:
            return 1
        return _MOST_QUEUED if self._device_clock else 1_000_000

    def block(self, launches: int, *, warm: bool = False, walled: bool = True) -> BlockTime:
        """Run a block on the device's clock where it has one, and on the judge's.

        ``warm``: all of it on one input set, which is in the cache if it fits. ``walled``: where
        there is a device's clock, whether the judge's is wanted too: each takes a run of its own.
        """
        if self._in_place:
            self._turn = (self._turn + 1) % len(self._calls)
        device_ms = None
        if self._device_clock:
            _, device_ms = self._timed(launches, device_clock=True, warm=warm)
            if device_ms is not None and not walled:
                return BlockTime(device_ms, device_ms)
        wall_ms, _ = self._timed(launches, device_clock=False, warm=warm)
        return BlockTime(max(wall_ms - self._empty_ms, 0.0), device_ms)

    def _timed(
        self, launches: int, *, device_clock: bool, warm: bool
    ) -> tuple[float, float | None]:
        if self._in_place:
            self._inputs[self._turn].restore()
            self._trial.fetch(self._inputs[self._turn])
        return self._order_ms(launches, device_clock=device_clock, warm=warm)

    def traced_ms(self) -> float | None:
        """Return what the kernels of one call take by a trace, made in another process.

        None where the device has no tracer, or saw no kernel. Raises CandidateError.
        """
        with self._trial.twin() as twin:
            timeline = twin.timeline(self._inputs[0], _TRACED_CALLS)
            twin.release(self._inputs[0])
        if timeline is None or not timeline.kernels:
            return None
        return sum(each.duration_us for each in timeline.kernels) / 1e3 / timeline.calls

    def fresh_block(
        self, launches: int, seed: int, *, by_judge: bool = False
    ) -> tuple[InputSet, CallClaim]:
        """Run a block like any other, but one input set has new content; return its results.

        The addresses stay, and the set's outputs hold garbage before: what an earlier call left
        is of no use. ``by_judge``: a block as the judge's clock times it, where the device has one
        too. A candidate can tell the two apart by who calls it.
        """
        inputs = self._inputs[seed % len(self._inputs)]
        inputs.redraw(seed)
        return inputs, self._block_on(inputs, launches, by_judge=by_judge)

    @property
    def two_clocks(self) -> bool:
        """Whether blocks are timed by the device's clock and by the judge's."""
        return self._device_clock

    def nearly_same_block(self, launches: int, seed: int) -> tuple[InputSet, CallClaim] | None:
        """The same where one element within one input has changed; None where none may.

        Whoever knows inputs again by a part of their content returns an old result here.
        """
        inputs = self._inputs[seed % len(self._inputs)]
        if self._in_place or not inputs.perturb(seed):
            return None
        return inputs, self._block_on(inputs, launches)

    def _block_on(self, inputs: InputSet, launches: int, *, by_judge: bool = False) -> CallClaim:
        inputs.poison(_GARBAGE)
        place = next(i for i, each in enumerate(self._inputs) if each is inputs)
        if self._in_place:
            self._turn, launches = place, 1
        else:
            launches = ending_elsewhere(launches, len(self._inputs), place)
        self._trial.fetch(inputs)
        self._order_ms(launches, device_clock=self._device_clock and not by_judge)
        claim = self._trial.collect(inputs)
        self._trial.store(*(each for each in self._inputs if each is not inputs))
        return claim

    def _order_ms(
        self, launches: int, *, device_clock: bool, warm: bool = False
    ) -> tuple[float, float | None]:
        calls = [self._calls[self._turn]] if self._in_place else self._calls
        calls = calls[:1] if warm else calls
        start = time.perf_counter()
        reply = self._trial.order(
            "time", calls=calls, launches=launches, device_clock=device_clock, alone=self._large
        )
        wall_ms = (time.perf_counter() - start) * 1e3
        return wall_ms, self._trial.device_time(reply, wall_ms) if device_clock else None


def _copied(inputs: Sequence[InputSet]) -> list[CopiedSegment]:
    segments = (segment for each in inputs for segment in each.segments)
    return [segment for segment in segments if isinstance(segment, CopiedSegment)]


def ending_elsewhere(launches: int, sets: int, place: int) -> int:
    """Return how many launches, at least ``launches``, reach every set and end on another than one.

    Launch ``i`` runs on set ``i % sets``. A kernel that gives the same buffer for every call would
    still hold the right result for the set that it ran on last.
    """
    enough = max(launches, sets)
    return enough + (sets > 1 and (enough - 1) % sets == place)
