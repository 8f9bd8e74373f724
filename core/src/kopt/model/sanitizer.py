"""What sanitizers found in a call of an instrumented build of a candidate."""

from __future__ import annotations

from pydantic import Field

from kopt.model.record import Record

SANITIZER_SECONDS = 90.0
"""What an Executable's ``sanitize`` may take, builds included; what is not done by then is skipped."""
DEVICE_SANITIZER_SECONDS = 30.0
"""What two calls under a tool of a GPU may take: nobody measures on it meanwhile."""


class SanitizerFinding(Record):
    """One report of one tool."""

    tool: str
    """``address``, ``undefined``, ``thread``; ``memcheck`` and others of a device's sanitizer."""
    kind: str
    """In the tool's own words, as ``heap-buffer-overflow``, ``shift-exponent`` or ``data race``."""
    line: int | None = Field(default=None, ge=1)
    """Of the candidate's source, where the tool named it."""
    message: str


class SanitizerReport(Record):
    """What every tool did: a claim, as everything that a candidate's process says."""

    ran: tuple[str, ...] = ()
    """Tools that saw the call to its end, or reported something."""
    skipped: dict[str, str] = Field(default_factory=dict)
    """Tools that did not: why, and what would help."""
    findings: tuple[SanitizerFinding, ...] = ()
    seconds: float = Field(ge=0)
    """Builds and runs together."""
