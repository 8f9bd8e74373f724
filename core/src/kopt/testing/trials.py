"""Trials as a verifier gets them: a real reference, and a candidate in a real process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal

from kopt.errors import ProblemError
from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.device import DeviceKind
from kopt.model.evaluation import Build
from kopt.model.problem import Problem
from kopt.model.reference import Alone
from kopt.testing.bench import SECONDS, CandidateBench
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import PluginRef
from kopt.worker.trial import ProcessTrial

BACKENDS: tuple[PluginRef, ...] = (
    ("backend", "kopt-torch:torch", {}), ("backend", "kopt-cpp:cpp", {}),
)  # fmt: skip


class Trials:
    """Makes trials of candidates for one problem. Use it as a context."""

    def __init__(
        self,
        problem: Problem,
        cache: Path,
        *,
        device: DeviceKind = "cpu",
        backends: Sequence[PluginRef] = BACKENDS,
        run_seconds: float = SECONDS,
        purpose: str = "torch",
    ) -> None:
        """Open the problem here. Raises ProblemError.

        :param run_seconds: deadline of one launch.
        :param purpose: the language of most candidates; see CandidateBench.
        """
        reference = Hooks.load(list(backends)).kopt_open_reference(problem, device, Alone())
        if reference is None:
            raise ProblemError(f"no backend opens {problem.name!r}; install kopt-torch")
        self.reference = reference
        self._run_seconds = run_seconds
        self._seeds = itertools.count(1)
        self.bench = CandidateBench(backends, problem, reference.device, cache, purpose=purpose)

    def of(
        self, candidate: Candidate, *, depth: Literal["search", "winner"] = "search"
    ) -> ProcessTrial:
        """Build a candidate and return its trial, with a seed of its own. Raises CandidateError."""
        build = self.bench.build(candidate)
        return self._in(self.bench.process, candidate, build, depth)

    def _in(
        self,
        process: CandidateProcess,
        candidate: Candidate,
        build: Build,
        depth: Literal["search", "winner"],
    ) -> ProcessTrial:
        return ProcessTrial(
            process, self.reference, candidate, build, seed=next(self._seeds), depth=depth,
            run_seconds=self._run_seconds, twin=lambda: self._twin(candidate, depth),
        )  # fmt: skip

    @contextmanager
    def _twin(
        self, candidate: Candidate, depth: Literal["search", "winner"]
    ) -> Iterator[ProcessTrial]:
        process = self.bench.another()
        try:
            reply = process.order("build", SECONDS, candidate=candidate.to_json(), key=candidate.id)
            yield self._in(process, candidate, Build.model_validate(reply["build"]), depth)
        finally:
            process.kill()

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process and give the reference's memory back."""
        self.bench.close()
        self.reference.close()
