"""What a session asks of whoever evaluates its candidates, here or on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pydantic import Field

from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Build, Evaluation
from kopt.model.measurement import Measurement
from kopt.model.probe import Probe
from kopt.model.problem import Signature
from kopt.model.record import Record
from kopt.model.verification import Status


class Baseline(Record):
    """A baseline that was built, found correct and timed."""

    name: str
    candidate: Candidate
    evaluation: Evaluation

    @property
    def measurement(self) -> Measurement:
        """Its times; a baseline without them is never made into one."""
        assert self.evaluation.measurement is not None
        return self.evaluation.measurement


class Opening(Record):
    """What opening a problem on a device taught."""

    device: Device
    signature: Signature
    baselines: tuple[Baseline, ...]
    fastest: str
    """The fastest correct baseline: what a search is measured against."""
    failed_baselines: dict[str, str] = Field(default_factory=dict)
    """Name to reason."""
    noise: float
    copy_ms: dict[str, float]
    """Per measured workload: a plain copy of its compulsory bytes."""


class Compiled(Record):
    """What building a candidate for a target has given; nothing of it was run."""

    target: str
    """As ``sm_90``; ``native`` for this machine's CPU."""
    build: Build | None = None
    """None where it does not compile."""
    kernels: tuple[dict[str, Any], ...] = ()
    """Resources of each kernel that a call would launch, with units in the names."""
    listings: dict[str, str] = Field(default_factory=dict)
    """Name to text, where a listing was asked for."""
    status: Status | None = None
    """Of what is wrong; None: it compiles, and fits its target."""
    fault: str = ""
    """What is wrong, for a person."""


class Evaluator(Protocol):
    """Builds, verifies and measures candidates of one problem."""

    def open(self) -> Opening:
        """Run the reference, the baselines and the A/A comparison. Raises KoptError."""
        ...

    def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        """Yield one evaluation per candidate, as each is ready."""
        ...

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Evaluate again in a fresh process, with new seeds, against every baseline."""
        ...

    def verify(self, candidate: Candidate) -> Evaluation:
        """Build and verify at a winner's depth, without timing."""
        ...

    def probe(self, candidate: Candidate) -> Probe:
        """Return a profiler's access to a correct candidate."""
        ...

    def close(self) -> None:
        """End every process."""
        ...
