"""Prices: the table's rows, whose they are, and that what nobody knows is not zero."""

from __future__ import annotations

import datetime
import tomllib
from importlib import resources

import pytest

from kopt.model.completion import Usage
from kopt_openai import OpenAI
from kopt_openai.pricing import FREE, highest, rate_of, table

TABLE = tomllib.loads(
    resources.files("kopt_openai").joinpath("prices.toml").read_text(encoding="utf-8")
)
ROWS = [(each["host"], row) for each in TABLE["endpoint"] for row in each["price"]]
HOSTED = "api.openai.com"


def options(**given):
    return OpenAI.Options.model_validate(given)


@pytest.mark.parametrize(("host", "row"), ROWS, ids=lambda value: str(value)[:40])
def test_a_row_says_when_and_where_it_was_read(host, row):
    known = {"models", "input", "output", "cached", "written", "up_to", "date", "source"}
    assert row.keys() <= known
    assert isinstance(row["date"], datetime.date)
    assert row["source"].startswith("https://")
    assert 0 < row["input"] < row["output"] < 1000
    assert 0 < row.get("cached", row["input"]) <= row["input"] <= row.get("written", row["input"])


def test_no_row_is_hidden_by_an_earlier_one():
    for host, row in ROWS:
        name = row["models"][0].replace("[5-8]", "8").replace("[56]", "6").replace("?", "1")
        found = rate_of(name, options(), host)
        assert found is not None
        assert (found.input, found.output) == (row["input"], row["output"]), name
    assert len(table()) == len(ROWS)


def test_snapshots_and_their_exceptions():
    snapshot = rate_of("gpt-4o-2024-08-06", options(), HOSTED)
    assert snapshot == rate_of("gpt-4o", options(), HOSTED)
    old = rate_of("gpt-4o-2024-05-13", options(), HOSTED)
    assert old is not None and snapshot is not None and old.input > snapshot.input
    assert rate_of("gpt-4o-audio-preview", options(), HOSTED) is None
    assert rate_of("gpt-5-pro", options(), HOSTED) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "10.1.2.3", "gateway.example", ""])
def test_a_model_elsewhere_has_no_price_and_is_not_free(host):
    assert rate_of("gpt-5", options(), host) is None
    assert rate_of("gpt-5", options(free=True), host) == FREE


def test_the_users_prices_win():
    given = options(prices={"gpt-5*": {"input": 7, "output": 70}}, free=True)
    found = rate_of("gpt-5-mini", given, HOSTED)
    assert found is not None and (found.input, found.output, found.cached) == (7, 70, 7)
    assert rate_of("other", given, HOSTED) == FREE
    cached = options(prices={"m": {"input": 7, "output": 70, "cached": 1}})
    rate = rate_of("m", cached, "localhost")
    assert rate is not None
    usage = Usage(input_tokens=3_000_000, output_tokens=1_000_000, cached_tokens=1_000_000)
    assert rate.usd(usage) == pytest.approx(2 * 7 + 1 + 70)


def test_what_is_written_to_a_cache_costs_more():
    rate = rate_of("gpt-6-sol", options(), HOSTED)
    assert rate is not None
    usage = Usage(input_tokens=200_000, cached_tokens=50_000, output_tokens=1_000)
    plain, written = rate.usd(usage), rate.usd(usage, written=100_000)
    assert plain is not None and written is not None
    assert plain == pytest.approx((150_000 * 2.0 + 50_000 * 0.2 + 1_000 * 10.0) / 1e6)
    assert written - plain == pytest.approx(100_000 * 0.5 / 1e6)
    assert rate.usd(Usage(input_tokens=272_001)) is None  # another price, which the table has not


def test_a_price_is_that_of_the_dearest_model_that_may_answer():
    found = highest(("gpt-5-mini", "gpt-5"), options(), HOSTED)
    assert found is not None
    assert (found.model, found.input_usd, found.output_usd) == ("gpt-5-mini or gpt-5", 1.25, 10.0)
    assert "developers.openai.com" in found.source and "2026-" in found.source
    assert highest(("gpt-5", "nobody-knows"), options(), HOSTED) is None
    written = highest(("gpt-6-sol",), options(), HOSTED)
    assert written is not None and written.input_usd == 2.5


def test_the_hook_follows_roles_and_the_endpoint(monkeypatch):
    given = options(model="gpt-5", models={"analysis": "gpt-5-nano"})
    plugin = OpenAI(given)
    code, analysis = plugin.kopt_price("code"), plugin.kopt_price("analysis")
    assert code is not None and analysis is not None
    assert (code.model, code.input_usd) == ("gpt-5", 1.25)
    assert (analysis.model, analysis.input_usd) == ("gpt-5-nano", 0.05)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert plugin.kopt_price("code") is None
    free = OpenAI(options(free=True)).kopt_price("code")
    assert free is not None and (free.input_usd, free.output_usd) == (0.0, 0.0)
    assert free.model
