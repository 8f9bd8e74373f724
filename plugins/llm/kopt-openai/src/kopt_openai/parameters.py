"""A request as an endpoint takes it, without what this model has refused before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kopt.model.completion import CompletionRequest
    from kopt_openai.options import Options

_LIMITS = ("max_completion_tokens", "max_tokens")
_NEEDED = frozenset({"model", "messages", "input", "stream", "max_output_tokens", "extra_body"})


class Refused:
    """What each model refused, as long as the plugin lives. Safe to use from threads."""

    def __init__(self) -> None:
        self._of: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def of(self, model: str) -> frozenset[str]:
        """Return the names of parameters not to send."""
        return self._of.get(model, frozenset())

    def add(self, model: str, name: str) -> None:
        """Remember one."""
        with self._lock:
            self._of[model] = self.of(model) | {name}


def chat(
    model: str,
    request: CompletionRequest,
    options: Options,
    refused: frozenset[str],
    *,
    hosted: bool,
) -> dict[str, Any]:
    """Return the arguments of the chat API.

    :param hosted: whether this is OpenAI's own endpoint, whose newer models take the limit of the
        answer by another name than most servers know.
    """
    names = _LIMITS if hosted else _LIMITS[::-1]
    limit = next((name for name in names if name not in refused), names[0])
    found: dict[str, Any] = {
        "messages": [message.to_json() for message in request.messages],
        limit: request.max_tokens,
        "stream_options": {"include_usage": True},
        "reasoning_effort": options.reasoning_effort,
        "seed": None if options.seed is None else options.seed + request.sample,
    }
    return _complete(found, model, request, options, refused)


def responses(
    model: str, request: CompletionRequest, options: Options, refused: frozenset[str]
) -> dict[str, Any]:
    """Return the arguments of the responses API, which knows no seed."""
    effort = options.reasoning_effort
    found: dict[str, Any] = {
        "input": [message.to_json() for message in request.messages],
        "max_output_tokens": request.max_tokens,
        "reasoning": {"effort": effort} if effort else None,
        "store": False,
    }
    return _complete(found, model, request, options, refused)


def _complete(
    found: dict[str, Any],
    model: str,
    request: CompletionRequest,
    options: Options,
    refused: frozenset[str],
) -> dict[str, Any]:
    temperature = options.temperature if request.temperature is None else request.temperature
    body = {name: value for name, value in options.body.items() if name not in refused}
    found |= {"temperature": temperature, "extra_body": body or None}
    kept = {
        name: value for name, value in found.items() if value is not None and name not in refused
    }
    return {"model": model, **kept, "stream": True}


def droppable(parameters: dict[str, Any], refused: frozenset[str]) -> frozenset[str]:
    """Return which of these can be left out, or be sent by their other name.

    A limit of the answer is always sent: without one nobody knows what a request may cost.
    """
    limits = set(_LIMITS) & set(parameters)
    last = limits if set(_LIMITS) - limits <= refused else set()
    return frozenset(parameters) - _NEEDED - last
