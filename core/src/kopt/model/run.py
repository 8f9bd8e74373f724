"""A run: what was asked, what was found, what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from kopt.model.budget import Budget, Spend
from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Evaluation
from kopt.model.measurement import Measurement, fastest_of
from kopt.model.problem import Problem
from kopt.model.record import Record

RunStatus = Literal["running", "improved", "not-improved", "interrupted", "failed"]


class RunConfig(Record):
    """Everything that decides a run's course, as settled before it starts."""

    backend: str
    """As ``cpp`` or ``kopt-cpp:cpp``: also the language that strategies write."""
    beside: tuple[str, ...] = ()
    """Further backends, whose languages strategies may write too."""
    reference: str = "torch"
    strategies: tuple[str, ...]
    search: str
    verifiers: tuple[str, ...]
    profilers: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    llm: str | None = None
    executor: str | None = None
    options: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Plugin options, ``role.name`` to options."""
    device: Literal["cpu", "cuda"]
    budget: Budget = Budget()
    seed: int = 0
    build_workers: int | None = None
    """Builds at a time; None: one per CPU."""
    build_seconds: float = 120.0
    """Deadline of one build."""
    run_seconds: float = 60.0
    """Deadline of one launch or block of launches."""
    confirm: Literal["best", "faster"] = "best"
    """Whether the best kernel is confirmed in any case, or only where the search saw it faster than
    every baseline, or could not tell."""

    @property
    def languages(self) -> tuple[str, ...]:
        """What strategies may write: the backend's language, then those beside it."""
        return tuple(name.rpartition(":")[2] for name in (self.backend, *self.beside))


class Run(Record):
    """The outcome of a run; frozen, and all of it is in the run's folder."""

    id: str
    folder: Path
    status: RunStatus
    reason: str = ""
    """Why it ended."""
    problem: Problem
    config: RunConfig
    device: Device | None = None
    baselines: dict[str, Measurement] = Field(default_factory=dict)
    failed_baselines: dict[str, str] = Field(default_factory=dict)
    copy_ms: float | None = None
    """A plain copy of the compulsory bytes, weighted as ``latency_ms`` is."""
    best: Evaluation | None = None
    """The fastest correct candidate, as confirmed in a fresh process; ``status`` says whether it
    beat every baseline. None: no candidate was found correct and confirmed."""
    source_path: Path | None = None
    """The winner's file in the run's folder, its knob values as the header's defaults."""
    trials: dict[str, int] = Field(default_factory=dict)
    """Count by status."""
    spend: Spend = Spend()
    plugins: dict[str, str] = Field(default_factory=dict)
    """``role.name`` to distribution and version."""

    @property
    def keep(self) -> str:
        """What is fastest and right: ``best``, or a baseline's name where nothing beat them all.

        Empty where nothing was timed.
        """
        if self.status == "improved":
            return "best"
        return fastest_of(self.baselines)

    @property
    def best_candidate(self) -> Candidate | None:
        """The winner's candidate."""
        return self.best.candidate if self.best else None
