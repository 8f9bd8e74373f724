"""What a model's answer turns out to be: read as text, never executed."""

from __future__ import annotations

from kopt_rewrite.replies.outcome import POLICIES, Outcome, Policy, Reading
from kopt_rewrite.replies.reading import Wanted, read_reply

__all__ = ["POLICIES", "Outcome", "Policy", "Reading", "Wanted", "read_reply"]
