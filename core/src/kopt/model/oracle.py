"""What a verifier says of its own oracle: which known-wrong results it would reject."""

from __future__ import annotations

from kopt.model.record import Record


class OracleFinding(Record):
    """One kind of wrong result, and what becomes of it."""

    mutation: str
    """What was done to the right result, as ``zeros`` or ``dropped weight``."""
    rejected_by: tuple[str, ...]
    """The first input distribution that rejects it, on which candidates are asked too; empty: none.
    It is not tried on those after it."""
    native_rejects: bool
    """Whether the problem's own inputs suffice to reject it."""
    tolerance_accepts: bool
    """Whether a bare tolerance on the problem's own inputs lets it through."""
    equivalent: bool = False
    """It is the right result on every distribution, in float64 where inputs were changed: nothing
    is wrong with it."""
    survives: bool
    """It is wrong, or the reference returns a constant, and no distribution rejects it."""
    evidence: str = ""
    """The comparison that rejected it, or the closest that did not."""


class OracleReport(Record):
    """Every known-wrong result of one problem."""

    verifier: str
    workload: str
    distributions: tuple[str, ...]
    tolerance: float
    """The bare tolerance, absolute and relative, that kopt's rule is compared with."""
    findings: tuple[OracleFinding, ...]
    constant: tuple[str, ...] = ()
    """Mutations which show that the reference returns the same whatever its inputs are."""
    notes: tuple[str, ...] = ()
    """Sentences for a person: what is degenerate, what could not be tried."""

    @property
    def survivors(self) -> tuple[OracleFinding, ...]:
        """What this problem cannot tell from a right result."""
        return tuple(finding for finding in self.findings if finding.survives)
