"""What is asked of a language model, and what it answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kopt.model.record import Record


class Message(Record):
    """One turn."""

    role: Literal["system", "user", "assistant"]
    content: str


class CompletionRequest(Record):
    """A request that any LLM plugin can answer."""

    messages: tuple[Message, ...]
    max_tokens: int = Field(default=4096, gt=0)
    temperature: float = Field(default=0.7, ge=0)


class Completion(Record):
    """An answer and what it cost."""

    text: str
    model: str
    tokens: int = Field(ge=0)
    usd: float | None = None
    """None: the price is unknown (never counted as zero)."""
