"""Ideas as a model proposes them: read leniently from its answer, kept strictly."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS
from kopt.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CHARACTERS = 400_000
"""Of an answer that is looked at: ideas are short."""
_MOST_OBJECTS = 64
_EXPECTED = 6
_IN_LINEAGE = 600
"""Characters of a change that a candidate carries along."""
_EXPECTS = re.compile(r" \(expects ([^()]*)\)$")


class Expectation(Record):
    """How a metric is expected to change."""

    metric: str
    """By kopt's name (kopt.model.metrics)."""
    factor: float = Field(gt=0)
    """New value over old one."""

    @property
    def text(self) -> str:
        """As ``latency_us x0.6``."""
        return f"{self.metric} x{self.factor:.3g}"


class Idea(Record):
    """One change to a kernel, and what it is expected to bring."""

    title: str = Field(min_length=1)
    change: str = ""
    """What to do."""
    reason: str = ""
    expects: tuple[Expectation, ...] = ()

    @property
    def text(self) -> str:
        """How a candidate's lineage tells it: title, change and expectations in one line."""
        return self._said(one_line(self.change, _IN_LINEAGE))

    @property
    def whole(self) -> str:
        """What whoever writes its code is told: all of it, with the reason on a line of its own."""
        return f"{self._said(self.change)}\n{self.reason}".strip()

    def _said(self, change: str) -> str:
        said = f"{self.title}: {change}" if change else self.title
        expected = ", ".join(each.text for each in self.expects)
        return f"{said} (expects {expected})" if expected else said


def read_ideas(text: str, most: int) -> list[Idea]:
    """Return the ideas of an answer in their order, each title once; [] where there are none.

    JSON is looked for anywhere in the text; objects before the place where an answer was cut off
    still count. Nothing that a model writes makes this raise.
    """
    found: dict[str, Idea] = {}
    for item in objects_in(text):
        idea = _idea(item)
        if idea is not None:
            found.setdefault(idea.title.casefold(), idea)
    return list(found.values())[:most]


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects of a text; those in lists or under one key come singly."""
    text = text[:_MOST_CHARACTERS]
    decoder, at, tries = json.JSONDecoder(), text.find("{"), 0
    while at >= 0 and tries < _MOST_OBJECTS:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield from _unwrapped(value)
        at = text.find("{", end)


def _unwrapped(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``{"ideas": [...]}``, or the object itself."""
    lists = [each for each in value.values() if isinstance(each, list)]
    inner = [item for each in lists for item in each if isinstance(item, dict)]
    if "title" not in value and "bottleneck" not in value and inner:
        yield from inner
    else:
        yield value


def _idea(item: dict[str, Any]) -> Idea | None:
    title = one_line(item.get("title") or item.get("idea"), 80)
    if not title:
        return None
    return Idea(
        title=title.rstrip(".:"), change=one_line(item.get("change"), 4_000),
        reason=one_line(item.get("reason") or item.get("why"), 2_000),
        expects=tuple(_expectations(item.get("expects")))[:_EXPECTED],
    )  # fmt: skip


def _expectations(value: object) -> Iterator[Expectation]:
    """Yield expectations of metrics that kopt knows; the rest cannot be compared with anything."""
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(e.get("metric"), e.get("factor")) for e in value if isinstance(e, dict)]
    else:
        return
    for name, factor in pairs:
        known = isinstance(name, str) and (name in CALL_METRICS or name in KERNEL_METRICS)
        number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
        if known and number and math.isfinite(factor) and 0 < factor < 1e6:
            yield Expectation(metric=str(name), factor=float(factor))


def expectations_of(text: str) -> tuple[Expectation, ...]:
    """Return what an idea's text, as ``Idea.text`` has it, expects; () where it expects nothing."""
    said = _EXPECTS.search(text)
    pairs = (each.rpartition(" x") for each in said[1].split(", ")) if said else ()
    return tuple(_expectations([{"metric": m, "factor": _number(f)} for m, _, f in pairs]))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def one_line(value: object, most: int) -> str:
    """Return text on one line, without control characters and backticks, of bounded length."""
    if not isinstance(value, str):
        return ""
    plain = re.sub(r"[\x00-\x1f\x7f\u2028\u2029`]+", " ", value[: 4 * most])
    plain = re.sub(r" {2,}", " ", plain).strip()
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"
