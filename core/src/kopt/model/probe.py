"""A profiler's access to a candidate: run it under a tool, trace it, or list its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kopt.model.record import Record


class UnderTool(Record):
    """What came of running a candidate under a tool."""

    fault: str = ""
    """Why the call did not return; empty where it did."""
    output: str = ""
    """The last of what the tool and the candidate printed."""
    seconds: float


class KernelRun(Record):
    """One kernel launch as a trace has it."""

    name: str
    start_us: float
    duration_us: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None


class Timeline(Record):
    """The kernels of some calls, in the order of their starts."""

    calls: int
    kernels: tuple[KernelRun, ...]


class Probe(Protocol):
    """The judge's offer to a profiler, for one correct candidate on its first workload.

    Every method uses processes of their own, so that nothing of it touches a measured time, and
    holds the device for itself.
    """

    def under(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        calls: int = 1,
        seconds: float = 120.0,
    ) -> UnderTool:
        """Run a candidate process through ``command``, as ``("ncu", "--profile-from-start", "off")``.

        The candidate is built and called once; then CUDA's profiler is started (cuProfilerStart,
        on a GPU), ``calls`` more calls are made, and it is stopped. The process has ended on return.
        Never raises for what the candidate or the tool does.
        """
        ...

    def timeline(self, calls: int = 10) -> Timeline | None:
        """Trace the kernels of ``calls`` warm calls; None where the backend cannot.

        Raises CandidateError where the candidate fails.
        """
        ...

    def listing(self, kind: str) -> dict[str, str]:
        """Return what the compiler made of each kernel, as ``sass``: name to text.

        Raises CandidateError (UNSUPPORTED) where there is no such listing.
        """
        ...
