"""Keeps keys out of everything that is written: messages, answers, and the clients' own logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

MASK = "[secret]"
_SHORTEST = 4
"""Shorter ones tell nothing, and are in every text."""
_SHORTEST_IN_ANSWERS = 16
"""Local servers take any key, as ``ollama`` or ``none``: words that an answer may hold."""
_LIKE_A_KEY = re.compile(r"\bsk-[\w*-]{6,}|(?i:\b(?:bearer|basic)\s+)[\w.~+/=*-]{8,}")
_CLIENTS = ("openai", "httpx", "httpcore", "h11", "h2", "hpack")

_known: set[str] = set()


def protect(secrets: Iterable[str]) -> None:
    """Mask these from now on, in the clients' logs as well."""
    _known.update(secret for secret in secrets if len(secret) >= _SHORTEST)
    before = logging.getLogRecordFactory()
    if not isinstance(before, _MaskingFactory):
        # Not a filter of their loggers: a client imports parts of itself, with loggers of their own,
        # at its first request.
        logging.setLogRecordFactory(_MaskingFactory(before))


def cleaned(text: str) -> str:
    """Return a message without keys, nor what looks like one."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _LIKE_A_KEY.sub(MASK, text)


def cleaned_answer(text: str) -> str:
    """Return a model's answer without the keys themselves; all else stays as it is."""
    for secret in sorted(_known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_IN_ANSWERS:
            text = text.replace(secret, MASK)
    return text


class _MaskingFactory:
    """Makes log records as another factory does, and rewrites those of the clients."""

    def __init__(self, before: Callable[..., logging.LogRecord]) -> None:
        self._before = before

    def __call__(self, *arguments: Any, **keywords: Any) -> logging.LogRecord:
        record = self._before(*arguments, **keywords)
        if not record.name.startswith(_CLIENTS):
            return record
        said = record.getMessage()
        masked = cleaned(said)
        if masked != said:
            record.msg, record.args = masked, ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = cleaned(logging.Formatter().formatException(record.exc_info))
        return record
