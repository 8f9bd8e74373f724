"""One candidate's whole outcome."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from kopt.model.candidate import Candidate
from kopt.model.measurement import Measurement
from kopt.model.record import Record
from kopt.model.verification import Status, Verification


class Build(Record):
    """What a backend made of a source."""

    backend: str
    binary_id: str = ""
    """Hash of the binary that was run, debug information apart; empty where there is none."""
    launch_id: str = ""
    """Hash of how the binary is launched; empty where that is not known.

    Candidates with the same, not empty, ``binary_id`` and ``launch_id`` are one.
    """
    seconds: float = Field(ge=0)
    cached: bool = False
    resources: dict[str, Any] = Field(default_factory=dict)
    """Registers, spills, shared memory or code size, with units in the names."""
    log: str = ""


class Evaluation(Record):
    """A candidate, its status, and as much as was found out before it ended."""

    candidate: Candidate
    status: Status
    detail: str = ""
    """What went wrong, for a person."""
    build: Build | None = None
    verifications: tuple[Verification, ...] = ()
    measurement: Measurement | None = None
    seconds: float = Field(default=0.0, ge=0)
    """Wall-clock time that this evaluation took."""
    same_as: str = ""
    """Id of an earlier candidate with the same binary and launches: verdict and times are its."""

    @model_validator(mode="after")
    def _status_and_parts_agree(self) -> Evaluation:
        if self.status is not Status.CORRECT and self.measurement is not None:
            raise ValueError(f"a candidate that is {self.status} cannot carry a measurement")
        if self.status is Status.CORRECT and not self.verifications:
            raise ValueError("a candidate is correct only by a verifier's verdict")
        return self

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self.candidate.id

    @property
    def measured(self) -> bool:
        """Whether it is correct and timed."""
        return self.measurement is not None
