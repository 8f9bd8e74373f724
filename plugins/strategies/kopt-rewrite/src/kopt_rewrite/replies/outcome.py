"""The outcomes of reading a reply, and what is done about each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What a reply is. The first five are candidates."""

    MODULE = "module"
    """A whole file."""
    HEADER_ADDED = "header-added"
    """A whole file that lacked the kopt header; the parent's, or one that follows from the source."""
    EDITS = "edits"
    """Search and replace blocks that apply."""
    DIFF = "diff"
    """A unified diff that applies."""
    UNWRAPPED = "unwrapped"
    """A whole file out of JSON, HTML or a listing with line numbers."""
    EMPTY = "empty"
    NO_CODE = "no-code"
    """Prose only."""
    TRUNCATED = "truncated"
    REFUSAL = "refusal"
    WRONG_LANGUAGE = "wrong-language"
    UNCHANGED = "unchanged"
    EDITS_FAILED = "edits-failed"
    """Edits of which one does not apply, or not to one place alone."""
    NO_ENTRY = "no-entry"
    """Code without an entry point that kopt could call."""
    BAD_HEADER = "bad-header"
    """A kopt header that cannot be read, or asks for what a reply may not set."""
    TOO_LONG = "too-long"


class Policy(StrEnum):
    """What is done about an outcome."""

    USE = "use"
    RETRY = "retry"
    """Ask once more, and say what was wrong with the answer."""
    REPAIR = "repair"
    """Have the code itself repaired: it is there, and cannot be built as it stands."""
    GIVE_UP = "give-up"


POLICIES: dict[Outcome, Policy] = {
    Outcome.MODULE: Policy.USE,
    Outcome.HEADER_ADDED: Policy.USE,
    Outcome.EDITS: Policy.USE,
    Outcome.DIFF: Policy.USE,
    Outcome.UNWRAPPED: Policy.USE,
    Outcome.EMPTY: Policy.RETRY,
    Outcome.NO_CODE: Policy.RETRY,
    Outcome.TRUNCATED: Policy.RETRY,
    Outcome.REFUSAL: Policy.GIVE_UP,
    Outcome.WRONG_LANGUAGE: Policy.RETRY,
    Outcome.UNCHANGED: Policy.RETRY,
    Outcome.EDITS_FAILED: Policy.RETRY,
    Outcome.NO_ENTRY: Policy.REPAIR,
    Outcome.BAD_HEADER: Policy.REPAIR,
    Outcome.TOO_LONG: Policy.RETRY,
}


class Reading(NamedTuple):
    """What a reply turned out to be."""

    outcome: Outcome
    source: str = ""
    """The kernel file; where it cannot be used, the code as far as there is some."""
    detail: str = ""
    """What is wrong, for the model and for a person."""

    @property
    def policy(self) -> Policy:
        """What is done about it."""
        return POLICIES[self.outcome]

    @property
    def usable(self) -> bool:
        """Whether it is a candidate."""
        return self.policy is Policy.USE
