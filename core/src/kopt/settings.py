"""Every setting of a run: how its value is read, its flag and its meaning."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

DeviceChoice = Literal["cpu", "cuda"]
Reader = Callable[[object], object]

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|[dhms])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")
_NONE = "none"


def parse_duration(value: object) -> float:
    """Return seconds from a number or from text such as ``90s``, ``20m``, ``1h30m``.

    Raises ValueError where it is no duration, or not above zero.
    """
    seconds = _seconds(value)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{value!r} must be above zero")
    return seconds


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    wrong = ValueError(f"{value!r} is no duration; write '20m', '90s', '1h30m' or seconds")
    if not isinstance(value, str):
        raise wrong
    text = value.strip()
    sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if _NUMBER.fullmatch(text):
        return sign * float(text)
    total, position = 0.0, 0
    while match := _DURATION.match(text, position):
        total += float(match[1]) * _UNITS[match[2].lower()]
        position = match.end()
    if position != len(text) or not text:
        raise wrong
    return sign * total


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text; write it in quotes")
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def _words(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f'{value!r} is no list of names; write ["a", "b"]')
    names = tuple(_word(item) for item in items)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is named twice")
    return names


def _some_words(value: object) -> tuple[str, ...]:
    names = _words(value)
    if not names:
        raise ValueError("the list is empty: such a run could do nothing")
    return names


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,30}\s*", value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _count(value: object) -> int:
    number = _whole(value)
    if number <= 0:
        raise ValueError(f"{number} must be above zero: such a run could do nothing")
    return number


def _seed(value: object) -> int:
    number = _whole(value)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} must be zero or above, and below 2**63")
    return number


def _amount(value: object) -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r} is no number") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{value!r} must be above zero: such a run could do nothing")
    return number


def _device(value: object) -> DeviceChoice:
    if not isinstance(value, str) or value not in {"cpu", "cuda"}:
        raise ValueError(f"{value!r} is no device; write 'cpu' or 'cuda'")
    return cast("DeviceChoice", value)


def _folder(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_word(value)).expanduser()


def _or_none(read: Reader) -> Reader:
    """Let the text ``none`` lift what a layer below has set."""

    def read_or_none(value: object) -> object:
        return None if isinstance(value, str) and value.strip().lower() == _NONE else read(value)

    return read_or_none


@dataclass(frozen=True)
class Setting:
    """One setting."""

    read: Reader
    """Returns the value from a typed value or from text. Raises ValueError."""
    flag: str
    """Its option on the command line."""
    meaning: str
    form: str = ""
    """How a configuration file writes a value that is not text; empty where it is text."""

    def read_typed(self, value: object) -> object:
        """Read a configuration file's value: text for a number or a list is refused.

        Raises ValueError.
        """
        if self.form and isinstance(value, str) and value != _NONE:
            raise ValueError(f"{value!r} is text; write {self.form}")
        return self.read(value)


_LIST = 'a list, as ["a", "b"]'
_INTEGER = "a whole number, without quotes"
_COUNT = _or_none(_count)

SETTINGS: dict[str, Setting] = {
    "backend": Setting(_or_none(_word), "--backend", "builds candidates; none: the best here"),
    "strategies": Setting(_some_words, "--strategy", "propose candidates, in order", _LIST),
    "search": Setting(_word, "--search", "chooses what to work on next"),
    "verifiers": Setting(_some_words, "--verifier", "judge correctness; all must pass", _LIST),
    "profilers": Setting(_words, "--profiler", "measure how a kernel uses the device", _LIST),
    "judges": Setting(_words, "--judge", "say what limits a kernel", _LIST),
    "llm": Setting(_or_none(_word), "--llm", "language model plugin"),
    "executor": Setting(_or_none(_word), "--executor", "evaluates candidates elsewhere"),
    "device": Setting(_or_none(_device), "--device", "cpu or cuda; none: cuda where there is one"),
    "max_time": Setting(_or_none(parse_duration), "--max-time", "time budget, as 20m"),
    "max_trials": Setting(_COUNT, "--max-trials", "candidates to evaluate at most", _INTEGER),
    "max_tokens": Setting(_COUNT, "--max-tokens", "language model tokens at most", _INTEGER),
    "max_usd": Setting(
        _or_none(_amount), "--max-usd", "US dollars at most", "a number, without quotes"
    ),
    "seed": Setting(_seed, "--seed", "seed of everything that is drawn at random", _INTEGER),
    "build_workers": Setting(
        _COUNT, "--build-workers", "builds at a time; none: one per CPU", _INTEGER
    ),
    "build_timeout": Setting(parse_duration, "--build-timeout", "deadline of one build, as 2m"),
    "run_timeout": Setting(parse_duration, "--run-timeout", "deadline of one launch, as 60s"),
    "runs_dir": Setting(_folder, "--runs-dir", "folder of the run folders"),
}
"""By name, in the order in which they are shown."""
