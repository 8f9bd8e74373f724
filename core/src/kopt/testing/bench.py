"""A real candidate process for tests: it builds with the plugins named, and runs on shared memory."""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Build
from kopt.model.problem import Problem, Scalar
from kopt.model.values import CallClaim, CallSpec, NamedValue, ScalarValue
from kopt.testing.arrays import Array, Number, SharedArray, share
from kopt.worker.forking import Forker
from kopt.worker.limits import adopting_meanwhile
from kopt.worker.pool import ProcessRecipe
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import PluginRef

SECONDS = 60.0
"""Deadline of every order."""


@dataclass(frozen=True)
class Outcome:
    """What one call of a candidate left in shared memory, and what it said."""

    claim: CallClaim
    build: Build
    """As it is after the call, which is what compiles in some languages."""
    outputs: tuple[tuple[Number, ...], ...]
    inputs: dict[str, tuple[Number, ...]]
    canaries_hurt: tuple[str, ...]


_forkers: dict[str, Forker] = {}


def _forker(plugins: Sequence[PluginRef], purpose: str, cache: Path) -> Forker | None:
    """Return what forks processes with these plugins: one for all tests, until Python ends."""
    if sys.platform != "linux":
        return None
    key = json.dumps([purpose, *plugins])
    if key not in _forkers:
        _forkers[key] = Forker(cache, plugins, purpose)
        atexit.register(_forkers[key].kill)
    return _forkers[key]


class CandidateBench:
    """One candidate process, started when it is needed and again after a failure broke it.

    Use it as a context: the process is killed at its end.
    """

    def __init__(
        self, plugins: Sequence[PluginRef], problem: Problem, device: Device, cache: Path,
        *, purpose: str = "",
    ) -> None:  # fmt: skip
        """:param plugins: the backends, by name: the process loads them itself.

        :param purpose: the language of most candidates. Processes are then forked from one that has
            imported what building in it takes, where that is possible.
        """
        hidden = problem.reference.model_copy(update={"source": ""})
        opening = {
            "problem": problem.model_copy(update={"reference": hidden}).to_json(),
            "device": device.to_json(), "architecture": "native",
            "argument_names": [spec.name for spec in problem.inputs], "cache": str(cache),
        }  # fmt: skip
        self._device = device
        forker = _forker(plugins, purpose, cache) if purpose else None
        self._recipe = ProcessRecipe(cache, 0, plugins, opening, purpose=purpose, forker=forker)
        self._process: CandidateProcess | None = None
        self._calls = 0

    def __enter__(self) -> CandidateBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def process(self) -> CandidateProcess:
        """A process that is alive and healthy."""
        if self._process is not None and (self._process.tainted or not self._process.alive):
            self.close()
        if self._process is None:
            self._process = self.another()
        return self._process

    def another(self) -> CandidateProcess:
        """Start one more process, which is the caller's to kill."""
        with adopting_meanwhile():
            process = self._recipe.start()
        return self._recipe.ready(process)

    def build(self, candidate: Candidate) -> Build:
        """Build in the process. Raises CandidateError, UNSUPPORTED where no plugin builds it."""
        reply = self.process.order(
            "build", SECONDS, candidate=candidate.to_json(), key=candidate.id
        )
        return Build.model_validate(reply["build"])

    def run(
        self,
        candidate: Candidate,
        arguments: Mapping[str, Array | Scalar],
        outputs: Sequence[Array],
        *,
        keywords: Sequence[str] = (),
        structure: str = "tensor",
        launches: int = 1,
        seconds: float = SECONDS,
    ) -> Outcome:
        """Build, bind and launch once; return what lies in shared memory then.

        :param outputs: what the output buffers hold before the call.
        :param keywords: names of the arguments that are passed by keyword.
        :param seconds: the deadline of the launches.
        Raises CandidateError.
        """
        self.build(candidate)
        shared = {
            name: share(value, self._device.kind)
            for name, value in arguments.items()
            if isinstance(value, Array)
        }
        buffers = {f"out{i}": share(a, self._device.kind) for i, a in enumerate(outputs)}
        named = tuple(
            NamedValue(
                name=name, keyword=name in keywords,
                value=ScalarValue(value=value)
                if not isinstance(value, Array)
                else shared[name].ref(),
            )
            for name, value in arguments.items()
        )  # fmt: skip
        call = CallSpec(
            arguments=named, outputs=tuple(b.ref() for b in buffers.values()), structure=structure
        )
        try:
            claim, build = self._call(candidate, call, {**shared, **buffers}, launches, seconds)
            return Outcome(
                claim=claim,
                build=build,
                outputs=tuple(buffer.values() for buffer in buffers.values()),
                inputs={name: array.values() for name, array in shared.items()},
                canaries_hurt=tuple(
                    n for n, array in {**shared, **buffers}.items() if array.canaries_hurt()
                ),
            )
        finally:
            for array in (*shared.values(), *buffers.values()):
                array.close()

    def _call(
        self, candidate: Candidate, call: CallSpec, arrays: Mapping[str, SharedArray],
        launches: int, seconds: float,
    ) -> tuple[CallClaim, Build]:  # fmt: skip
        process = self.process
        self._calls += 1
        segments = [array.segment for array in arrays.values()]
        for segment in segments:
            announcement, descriptors = segment.announcement()
            process.order("attach", SECONDS, descriptors, segment=announcement)
        process.order(
            "bind", SECONDS, key=candidate.id, call_id=self._calls, call=call.to_json()
        )  # fmt: skip
        reply = process.order("run", seconds, call_id=self._calls, launches=launches)
        process.order(
            "release", SECONDS, calls=[self._calls], segments=[s.id for s in segments]
        )  # fmt: skip
        return CallClaim.model_validate(reply["claim"]), Build.model_validate(reply["build"])

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None
