"""What the session tells a judge process when it starts it."""

from __future__ import annotations

from pathlib import Path

from kopt.model.device import DeviceKind
from kopt.model.problem import Problem
from kopt.model.record import Record

PluginRef = tuple[str, str, dict[str, object]]
"""Role, ``distribution:name``, options."""


class JudgeSettings(Record):
    """Everything a judge needs; none of it is a secret of the user's."""

    problem: Problem
    device: DeviceKind
    architecture: str = "native"
    judge_plugins: tuple[PluginRef, ...]
    """Reference and verifiers."""
    candidate_plugins: tuple[PluginRef, ...]
    """Backends."""
    language: str = ""
    """Of the candidates, as far as it is known beforehand."""
    cache: Path
    locks: Path
    build_workers: int
    build_seconds: float
    run_seconds: float
    seed: int
    """Of the run; what the verifier draws is secret and not derived from it."""
    fastest: str | None = None
    """The baseline that an earlier part of this run was measured against; None: find it."""
    memory_limit: int = 0
    """Bytes of private memory of a candidate process; 0 is no cap."""
    confine: bool = True
    """Whether candidates may write to their own folders and the cache alone."""
