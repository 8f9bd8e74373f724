"""The session's end of a profiler's probe (kopt.model.probe.Probe)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError
from kopt.model.probe import Timeline, UnderTool
from kopt.model.verification import Status

if TYPE_CHECKING:
    from kopt.evaluator import Compiled
    from kopt.model.candidate import Candidate


class JudgeProbe:
    """One candidate, probed by the judge process of an evaluator."""

    def __init__(
        self,
        candidate: Candidate,
        ask: Callable[[str, float, dict[str, Any]], dict[str, Any]],
        compiled: Callable[[Candidate, str, str], Compiled],
        target: str,
    ) -> None:
        """``ask`` sends an order with the seconds that it may take beyond the usual."""
        self._candidate, self._ask, self._compiled = candidate, ask, compiled
        self._target = target
        self.told: Callable[[str, float], None] | None = None
        """Called after each use: what was done, and the seconds that it took."""

    def under(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        calls: int = 1,
        seconds: float = 120.0,
    ) -> UnderTool:
        """Run the candidate in a process that ``command`` starts."""
        fields = {
            "command": list(command), "environment": dict(environment or {}), "calls": calls,
            "seconds": seconds,
        }  # fmt: skip
        with self._timed(f"{Path(command[0]).name}"):
            return UnderTool.model_validate(self._order("under", seconds, fields))

    def timeline(self, calls: int = 10) -> Timeline | None:
        """Trace the kernels of warm calls; None where the backend cannot. Raises CandidateError."""
        with self._timed("tracing its kernels"):
            found = self._order("timeline", 0.0, {"calls": calls})["timeline"]
        return None if found is None else Timeline.model_validate(found)

    def listing(self, kind: str) -> dict[str, str]:
        """Return what the compiler made of each kernel. Raises CandidateError."""
        with self._timed(f"listing its {kind}"):
            found = self._compiled(self._candidate, self._target, kind)
        if not found.listings:
            status = found.status or Status.UNSUPPORTED
            raise CandidateError(status, found.fault or f"there is no {kind} of this candidate")
        return found.listings

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            if self.told is not None:
                self.told(what, time.monotonic() - start)

    def _order(self, op: str, seconds: float, fields: dict[str, Any]) -> dict[str, Any]:
        return self._ask(op, seconds, {"candidate": self._candidate.to_json(), **fields})
