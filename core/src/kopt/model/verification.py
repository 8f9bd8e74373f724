"""A verdict on correctness: stage by stage, with evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from kopt.model.record import Record


class Status(StrEnum):
    """How a candidate ended. Everything but CORRECT is a failure with its own name."""

    CORRECT = "correct"
    WRONG = "wrong"
    INCOMPLETE_WRITE = "incomplete-write"
    MUTATES_INPUT = "mutates-input"
    INVALID_OUTPUT = "invalid-output"
    DELEGATED = "delegated"
    NON_DETERMINISTIC = "non-deterministic"
    LAUNCH_FAILED = "launch-failed"
    ILLEGAL_ACCESS = "illegal-access"
    CRASHED = "crashed"
    HANG = "hang"
    OOM = "oom"
    COMPILE_ERROR = "compile-error"
    PARSE_ERROR = "parse-error"
    UNSUPPORTED = "unsupported"
    TIMING_NOT_CREDIBLE = "timing-not-credible"
    INFRASTRUCTURE_ERROR = "infrastructure-error"
    ORACLE_DEGENERATE = "oracle-degenerate"


class StageResult(Record):
    """One stage's outcome."""

    stage: str
    outcome: Literal["pass", "fail", "not run"]
    evidence: str = ""
    seconds: float | None = Field(default=None, ge=0)
    """Wall clock in the judge, with waiting for the device; None: not told apart."""


class Verification(Record):
    """What one verifier found."""

    verifier: str
    status: Status
    stages: tuple[StageResult, ...]
    error_ratio: float | None = Field(default=None, ge=0)
    """Candidate's rms error over the reference's own, both against float64; None: no such error."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _status_and_stages_agree(self) -> Verification:
        failed = any(stage.outcome == "fail" for stage in self.stages)
        if failed == (self.status is Status.CORRECT):
            raise ValueError(f"status {self.status} contradicts the stages")
        if not self.stages:
            raise ValueError("a verdict needs at least one stage")
        return self
