"""What models cost: the user's prices, then a table with date and source; never a guess."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from kopt.model.completion import Price, Usage
from kopt_openai.options import Options


@dataclass(frozen=True, slots=True)
class Rate:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float
    written: float
    """Of input that is put into the endpoint's cache."""
    up_to: int | None
    """Input tokens of a request above which other prices hold; None: the same for all."""
    source: str

    def usd(self, usage: Usage, written: int = 0) -> float | None:
        """Return what a request's tokens cost; None where the table has no price for so many.

        :param written: how many of the input tokens were put into a cache.
        """
        if self.up_to is not None and usage.input_tokens > self.up_to:
            return None
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(written, usage.input_tokens - cached)
        fresh = usage.input_tokens - cached - written
        total = fresh * self.input + cached * self.cached + written * self.written
        return (total + usage.output_tokens * self.output) / 1e6


FREE = Rate(0.0, 0.0, 0.0, 0.0, None, "the option free")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table: which models, at whose endpoint, at what rate."""

    host: str
    models: tuple[str, ...]
    rate: Rate


@functools.cache
def table() -> tuple[Entry, ...]:
    """Return ``prices.toml``, its rows in order; the first that fits counts."""
    text = resources.files("kopt_openai").joinpath("prices.toml").read_text(encoding="utf-8")
    return tuple(
        _entry(endpoint["host"], row)
        for endpoint in tomllib.loads(text)["endpoint"]
        for row in endpoint["price"]
    )


def _entry(host: str, row: dict[str, Any]) -> Entry:
    source = f"{row['source']}, {row['date']}"
    rate = Rate(
        row["input"], row["output"], row.get("cached", row["input"]),
        row.get("written", row["input"]), row.get("up_to"), source,
    )  # fmt: skip
    return Entry(host, tuple(row["models"]), rate)


def rate_of(model: str, options: Options, host: str) -> Rate | None:
    """Return what a model costs at an endpoint; None: nobody knows.

    A model of the same name elsewhere may have another price, so the table counts only where the
    host is the one that it was read for.
    """
    for pattern, price in options.prices.items():
        if fnmatchcase(model, pattern):
            cached = price.input if price.cached is None else price.cached
            return Rate(price.input, price.output, cached, price.input, None, "the option prices")
    if options.free:
        return FREE
    for entry in table():
        if entry.host == host and any(fnmatchcase(model, pattern) for pattern in entry.models):
            return entry.rate
    return None


def highest(models: Iterable[str], options: Options, host: str) -> Price | None:
    """Return the most that a request may cost which any of these models may answer.

    Input counts as if all of it were written to a cache where that is dearer. None where one of
    the prices is unknown.
    """
    names = list(models)
    rates = [rate for name in names if (rate := rate_of(name, options, host)) is not None]
    if not names or len(rates) < len(names):
        return None
    return Price(
        model=" or ".join(names) if all(names) else "the served model",
        input_usd=max(max(rate.input, rate.written) for rate in rates),
        output_usd=max(rate.output for rate in rates),
        cached_usd=max(rate.cached for rate in rates),
        source="; ".join(dict.fromkeys(rate.source for rate in rates)),
    )
