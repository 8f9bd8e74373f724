"""The judge's handle on one built candidate, as verifiers use it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol

from kopt.model.candidate import Candidate
from kopt.model.evaluation import Build
from kopt.model.origin import Origin
from kopt.model.problem import Problem
from kopt.model.reference import InputSet, Reference
from kopt.model.sanitizer import SanitizerReport
from kopt.model.values import CallClaim


class Trial(Protocol):
    """One candidate, built and alive in a process of its own."""

    problem: Problem
    candidate: Candidate
    reference: Reference
    build: Build
    seed: int
    """Secret; a fresh one for each verification."""
    depth: Literal["search", "winner"]

    @property
    def waited(self) -> float:
        """Seconds for which others on the device were waited for; a stage's own limit leaves them out."""
        ...

    def prepare(self, inputs: InputSet) -> None:
        """Have what a call launches compiled beside other work on the device; nothing runs.

        For inputs of new shapes, where a compiler works at the first launch.
        """
        ...

    def run(self, inputs: InputSet, launches: int = 1) -> CallClaim:
        """Launch on ``inputs`` and put the results into ``inputs.outputs``.

        Raises CandidateError where the candidate crashes, hangs or reports a fault.
        """
        ...

    def in_a_row(self, *inputs: InputSet) -> list[CallClaim]:
        """Launch on each, and only then put the results of all into their outputs."""
        ...

    def origin(self, inputs: InputSet) -> Origin | None:
        """Return whose compute one call uses; None where the backend cannot tell.

        The call may change what ``inputs`` hold, as any other.
        """
        ...

    def sanitize(self, inputs: InputSet) -> SanitizerReport | None:
        """Run one call of an instrumented build; None where the backend has none.

        Neither inputs nor outputs change.
        """
        ...

    def twin(self) -> AbstractContextManager[Trial]:
        """Lend the same candidate, built in another process: what happens there ends only that.

        For looks that may crash it, as on inputs that it was not made for.
        """
        ...

    def release(self, inputs: InputSet) -> None:
        """Have the candidate's process forget ``inputs``, before they are closed."""
        ...

    def settle(self, inputs: InputSet) -> bool:
        """Release the inputs of a call that failed; whether the process is fit for another one."""
        ...
