"""How much a run may spend, and what it has spent."""

from __future__ import annotations

from pydantic import Field

from kopt.model.record import Record


class Budget(Record):
    """Limits; None is no limit. Zero or less is refused: such a run could do nothing."""

    seconds: float | None = Field(default=None, gt=0)
    trials: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0)


class Spend(Record):
    """What a run has used up so far."""

    seconds: float = 0.0
    trials: int = 0
    tokens: int = 0
    usd: float = 0.0
    """Of what has a price."""
    unpriced_tokens: int = 0
    """Of these tokens, those whose price nobody knows: what they cost is not in ``usd``."""

    def exceeded(self, budget: Budget) -> str | None:
        """Return which limit is reached, in words; None while all hold."""
        for name in ("seconds", "trials", "tokens", "usd"):
            limit, used = getattr(budget, name), getattr(self, name)
            if limit is not None and used >= limit:
                return f"budget: {used:g} of {limit:g} {name} used"
        return None
