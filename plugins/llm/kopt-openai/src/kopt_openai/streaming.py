"""Reads an answer as it comes, and keeps what there is of it when it breaks off."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kopt.metering import estimated_tokens
from kopt.model.completion import Usage
from kopt_openai.troubles import EventError, NotAnAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai import AsyncOpenAI

Finish = Literal["stop", "length", "filter", "unknown"]

_FINISHES: dict[str, Finish] = {
    "stop": "stop", "length": "length", "max_tokens": "length", "max_output_tokens": "length",
    "content_filter": "filter",
}  # fmt: skip


@dataclass
class Reply:
    """What has come of an answer so far."""

    prompt_characters: int
    accepted: bool = False
    """Whether the endpoint began to answer: from then on tokens are used."""
    text: list[str] = field(default_factory=list)
    hidden: int = 0
    """Characters of reasoning that is shown beside the answer."""
    pieces: int = 0
    reported: Usage | None = None
    written: int = 0
    """Input tokens that were put into the endpoint's cache."""
    finish: Finish | None = None
    """None: the end was not seen."""

    @property
    def usage(self) -> Usage:
        """What was reported, or else an estimate that is rather too high than too low."""
        if self.reported is not None:
            return self.reported
        if not self.accepted:
            return Usage()
        shown = sum(map(len, self.text)) + self.hidden
        return Usage(
            input_tokens=estimated_tokens(self.prompt_characters),
            output_tokens=max(self.pieces, estimated_tokens(shown)),
            estimated=True,
        )

    def piece(self, text: object, *, hidden: bool = False) -> None:
        """Take one piece of the answer; what is no text is passed over."""
        if not isinstance(text, str) or not text:
            return
        self.pieces += 1
        if hidden:
            self.hidden += len(text)
        else:
            self.text.append(text)

    def ended(self, reason: object) -> None:
        """Take the end of the answer, and why."""
        if isinstance(reason, str) and reason:
            self.finish = _FINISHES.get(reason, "unknown")


async def read_chat(
    client: AsyncOpenAI, parameters: dict[str, Any], reply: Reply, alive: Callable[[], None]
) -> None:
    """Ask by the chat API; call ``alive`` with each piece. Raises what the client raises."""
    create: Any = client.chat.completions.create
    async with await create(**parameters) as stream:
        reply.accepted = True
        if await _whole(stream.response, reply):
            return
        async for chunk in stream:
            before = reply.pieces
            _take_chunk(chunk, reply)
            if reply.pieces > before or reply.finish:
                alive()


async def read_responses(
    client: AsyncOpenAI, parameters: dict[str, Any], reply: Reply, alive: Callable[[], None]
) -> None:
    """Ask by the responses API; call ``alive`` with each event. Raises what the client raises."""
    create: Any = client.responses.create
    async with await create(**parameters) as stream:
        reply.accepted = True
        if await _whole(stream.response, reply):
            return
        async for event in stream:
            _take_event(event, reply)
            alive()


async def _whole(response: Any, reply: Reply) -> bool:
    """Take an answer that came in one piece: some endpoints do not stream."""
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind in {"text/event-stream", ""}:
        return False
    body = await response.aread()
    if kind != "application/json":
        raise NotAnAnswerError(f"it answered with {kind}")
    _take_whole(json.loads(body), reply)
    return True


def _take_whole(found: object, reply: Reply) -> None:
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not choices or not isinstance(choices[0], dict):
        raise NotAnAnswerError("it answered in one piece that has no choices")
    message = choices[0].get("message") or {}
    reply.piece(message.get("content") or message.get("refusal"))
    reply.ended(choices[0].get("finish_reason") or "unknown")
    _take_usage(found.get("usage"), reply)


def _take_chunk(chunk: Any, reply: Reply) -> None:
    for choice in _field(chunk, "choices") or ():
        delta = _field(choice, "delta")
        reply.piece(_field(delta, "content"))
        reply.piece(_field(delta, "refusal"))
        reply.piece(_field(delta, "reasoning_content") or _field(delta, "reasoning"), hidden=True)
        reply.ended(_field(choice, "finish_reason"))
    _take_usage(_field(chunk, "usage"), reply)


def _take_event(event: Any, reply: Reply) -> None:
    kind = str(_field(event, "type") or "")
    if kind in {"response.output_text.delta", "response.refusal.delta"}:
        reply.piece(_field(event, "delta"))
    elif kind.startswith("response.reasoning") and kind.endswith(".delta"):
        reply.piece(_field(event, "delta"), hidden=True)
    elif kind in {"response.completed", "response.incomplete", "response.failed"}:
        response = _field(event, "response")
        _take_usage(_field(response, "usage"), reply)
        if kind == "response.failed":
            raise EventError(_field(response, "error"))
        details = _field(response, "incomplete_details")
        reply.ended("stop" if kind == "response.completed" else _field(details, "reason"))
    elif kind == "error":
        raise EventError(event)


def _take_usage(found: Any, reply: Reply) -> None:
    """Take reported usage of either API; zeros in all places are no report."""
    given = _count(found, "prompt_tokens") or _count(found, "input_tokens")
    made = _count(found, "completion_tokens") or _count(found, "output_tokens")
    if not given and not made:
        return
    inside = _field(found, "prompt_tokens_details") or _field(found, "input_tokens_details")
    outside = _field(found, "completion_tokens_details") or _field(found, "output_tokens_details")
    reply.reported = Usage(
        input_tokens=given, output_tokens=made,
        cached_tokens=min(given, _count(inside, "cached_tokens")),
        reasoning_tokens=min(made, _count(outside, "reasoning_tokens")),
    )  # fmt: skip
    reply.written = _count(inside, "cache_write_tokens")


def _count(found: Any, name: str) -> int:
    value = _field(found, name)
    return value if isinstance(value, int) and value > 0 else 0


def _field(found: Any, name: str) -> Any:
    """Return a field of what an endpoint sent; the client does not check that it is there."""
    return found.get(name) if isinstance(found, dict) else getattr(found, name, None)
