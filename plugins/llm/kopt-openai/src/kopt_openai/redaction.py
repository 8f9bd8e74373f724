"""Keeps keys out of everything that is written: messages, answers, and the clients' own logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

MASK = "[secret]"
_SHORTEST = 4
"""Shorter ones tell nothing, and are in every text."""
_SHORTEST_IN_ANSWERS = 16
"""Local servers take any key, as ``ollama`` or ``none``: words that an answer may hold."""
_LIKE_A_KEY = re.compile(r"\bsk-[\w*-]{6,}|(?i:\b(?:bearer|basic)\s+)[\w.~+/=*-]{8,}")
_CLIENTS = ("openai", "httpx", "httpcore", "h11", "h2", "hpack")

_known: set[str] = set()


def protect(secrets: Iterable[str]) -> None:
    """Mask these from now on, in the clients' logs as well. Call once the clients are imported."""
    _known.update(secret for secret in secrets if len(secret) >= _SHORTEST)
    for name in ("openai", *list(logging.root.manager.loggerDict)):
        if name.startswith(_CLIENTS):
            logger = logging.getLogger(name)
            if _FILTER not in logger.filters:
                logger.addFilter(_FILTER)


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


class _Masking(logging.Filter):
    """Rewrites records; lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        masked = cleaned(said)
        if masked != said:
            record.msg, record.args = masked, ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = cleaned(logging.Formatter().formatException(record.exc_info))
        return True


_FILTER = _Masking()
