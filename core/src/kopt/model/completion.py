"""What is asked of a language model, what it answers, and what that costs."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import Field

from kopt.model.record import Record, content_id

FailureKind = Literal[
    "unavailable", "timeout", "rate-limited", "quota", "context-overflow", "filtered", "invalid",
    "pending", "budget", "stopped",
]  # fmt: skip
"""Why a request has no answer.

``unavailable``: the endpoint cannot be reached, or fails; ``quota``: nothing more is to be had
today; ``invalid``: what came is no answer, or the request was refused as wrong; ``pending``:
somebody has still to write it; ``budget``: it was not asked, the run may spend no more;
``stopped``: it was not asked, the model is no longer asked in this run.
"""


class Message(Record):
    """One turn."""

    role: Literal["system", "user", "assistant"]
    content: str


class CompletionRequest(Record):
    """A request that any LLM plugin can answer."""

    messages: tuple[Message, ...] = Field(min_length=1)
    role: str = "code"
    """What it is for, by which a plugin may choose a model: ``code``, ``repair``, ``analysis``..."""
    purpose: str = ""
    """What it is asked on behalf of, as an idea's words: for accounts only."""
    max_tokens: int = Field(default=8192, gt=0)
    """Of the answer."""
    temperature: float | None = Field(default=None, ge=0)
    """None: the model's own."""
    sample: int = Field(default=0, ge=0)
    """Tells several answers to the same messages apart."""

    @property
    def prompt_id(self) -> str:
        """Content hash of the messages alone."""
        return content_id([message.to_json() for message in self.messages])

    @property
    def id(self) -> str:
        """Content hash of all but the purpose: equal requests have one answer in a run."""
        return content_id(self.prompt_id, self.role, self.max_tokens, self.temperature, self.sample)

    @property
    def characters(self) -> int:
        """How long the messages are."""
        return sum(len(message.content) for message in self.messages)


class Usage(Record):
    """Tokens of one request, all its tries included."""

    input_tokens: int = Field(default=0, ge=0)
    """Cached ones among them."""
    output_tokens: int = Field(default=0, ge=0)
    """Reasoning among them."""
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    estimated: bool = False
    """Whether some of it was not reported but estimated, rather too high than too low."""

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
        )


class Completion(Record):
    """An answer and what it cost."""

    text: str
    model: str
    usage: Usage = Usage()
    usd: float | None = Field(default=None, ge=0)
    """None: the price is unknown (never counted as zero)."""
    finish: Literal["stop", "length", "filter", "unknown"] = "unknown"
    """Why it ends: ``length`` is an answer cut off at ``max_tokens``."""


class CompletionFailure(Record):
    """Why a request has no answer, and what trying cost."""

    kind: FailureKind
    detail: str
    model: str = ""
    usage: Usage = Usage()
    usd: float | None = Field(default=0.0, ge=0)
    """None: something was used, at an unknown price."""


class Price(Record):
    """What a model costs, in US dollars per million tokens."""

    model: str
    input_usd: float = Field(ge=0)
    output_usd: float = Field(ge=0)
    cached_usd: float | None = Field(default=None, ge=0)
    """Of input that was cached; None: as input."""
    source: str = ""
    """Where the figures are from, with the date."""

    def of(self, usage: Usage) -> float:
        """Return what a request's tokens cost."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        fresh = usage.input_tokens - cached
        total = fresh * self.input_usd + cached * cached_usd + usage.output_tokens * self.output_usd
        return total / 1e6


class ExpectedCalls(Record):
    """Requests of one kind that a strategy expects to make in a run."""

    role: str
    """As CompletionRequest's."""
    calls: int = Field(ge=0)
    input_tokens: int = Field(ge=0)
    """Of one call."""
    output_tokens: int = Field(ge=0)
    """Of one call."""
    basis: str = ""
    """How the figures come about, for a person."""


class LanguageModel(Protocol):
    """The model of a run as strategies and judges see it: counted, capped and remembered.

    A request that was answered in this run is answered alike again, at no cost: that is how a
    resumed run goes on where it stopped. Raises RunPausedError where an answer has to be waited
    for; whatever was answered meanwhile is kept.
    """

    def complete(self, requests: list[CompletionRequest]) -> list[Completion | CompletionFailure]:
        """Ask all at once; return an answer, or why there is none, for each in order."""
        ...

    def any_of(
        self, requests: list[CompletionRequest]
    ) -> list[Completion | CompletionFailure | None]:
        """Ask all at once; wait for one answer, and return those that are there by then, in order.

        None: it is on its way, and comes with a later call. Where no answer comes, all are failures.
        """
        ...

    def give_up(self, requests: list[CompletionRequest]) -> None:
        """Have nobody write what is no longer wanted; what has come of it by then is paid for."""
        ...

    def prefetch(self, requests: list[CompletionRequest]) -> None:
        """Begin to ask, and return at once; ``complete`` collects. They are paid for, used or not."""
        ...

    def was(self, request: CompletionRequest, outcome: str, *, usable: bool) -> None:
        """Say what an answer turned out to be, as ``candidate``, ``truncated`` or ``refusal``.

        Many unusable ones in a row end the asking.
        """
        ...
