"""Structured events: the only file that uses structlog, which it imports when one is written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]

LEVELS: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

EVENTS = {
    "budget": "part of the money or the tokens that a run may spend is spent",
    "plugin_failed": "a hook of a plugin raised or answered with the wrong type; the run goes on",
    "plugin_retired": "a plugin failed three times in a row and is not asked again in this run",
    "request_failed": "a language model did not answer; what it cost is counted",
    "requests_abandoned": "a run ended while requests were on their way; what they cost is not known",
}
"""Every event that kopt writes, with its meaning."""


@dataclass(frozen=True, slots=True)
class _Settings:
    level: int = LEVELS["warning"]
    json: bool = False
    stream: TextIO | None = None
    """None: whatever ``sys.stderr`` is when an event is written."""
    explicit: bool = False


_settings = _Settings()


def configure(
    level: Level = "warning", *, json: bool = False, stream: TextIO | None = None
) -> None:
    """Choose what is written, how and where (standard error unless told otherwise).

    Leaves structlog's own configuration alone: it belongs to the program that embeds kopt.
    Raises ValueError for an unknown level.
    """
    global _settings
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}; levels are {', '.join(LEVELS)}")
    _settings = _Settings(LEVELS[level], json, stream, explicit=True)


class Logger:
    """Writes events with fields; costs nothing until the first one that is to be seen."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, event: str, **fields: object) -> None:
        """Write an event for somebody who looks for a fault."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write an event of normal progress."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write an event that the user should see though the run goes on."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write an event that changes what the run can achieve."""
        self._write("error", event, fields)

    def _write(self, level: Level, event: str, fields: dict[str, object]) -> None:
        if LEVELS[level] >= _settings.level:
            getattr(_target(), level)(event, logger=self.name, **fields)


def get_logger(name: str) -> Logger:
    """Return the logger of a module; ``name`` goes with each event as the field ``logger``."""
    return Logger(name)


def _target() -> Any:
    """Return the structlog logger to write to: ours, or the embedding program's if it has one."""
    import structlog

    if structlog.is_configured() and not _settings.explicit:
        return structlog.get_logger()
    stream = _settings.stream or sys.stderr
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if _settings.json:
        processors.append(structlog.processors.JSONRenderer(default=str))
    else:
        processors.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=processors,
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
    )
