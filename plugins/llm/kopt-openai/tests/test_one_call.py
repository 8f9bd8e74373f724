"""All tries of one request, at all models, cost no more than one call may."""

from __future__ import annotations

import pytest

PROMPT, INPUT, LIMIT = "x" * 300, 100, 1000
PRICES = {name: {"input": 2.0, "output": 10.0} for name in ("m", "n", "o")}


@pytest.fixture
def limits(server):
    """Return the limits of an answer that were sent, in order."""
    return lambda: [asked["max_tokens"] for asked in server.requests]


def writes(server, most, ends):
    """Write up to so many tokens, as far as the request allows; then end, or hang up."""

    def step(handler, body):
        text = "y" * 3 * min(most, body["max_tokens"])
        if ends:
            server.says(text, finish="length", usage=None)(handler, body)
        else:
            server.hangs_up(text)(handler, body)

    return step


@pytest.mark.parametrize("fallbacks", [(), ("n", "o")])
@pytest.mark.parametrize("retries", [0, 1, 20])
@pytest.mark.parametrize("written", [1, 30, 400, 650, 900, 1000])
def test_dropped_streams_cost_no_more_than_one_call(
    server, model, failure_of, written, retries, fallbacks
):
    server.does(writes(server, written, ends=False))
    plugin = model(prices=PRICES, fallbacks=fallbacks, retries=retries, backoff_seconds=0.001)
    failure = failure_of(plugin, text=PROMPT, max_tokens=LIMIT)
    assert failure.kind == "unavailable"
    assert failure.usage.input_tokens == len(server.requests) * INPUT
    assert failure.usage.total <= INPUT + LIMIT
    assert failure.usd == pytest.approx(
        (failure.usage.input_tokens * 2.0 + failure.usage.output_tokens * 10.0) / 1e6
    )


def test_what_failed_tries_used_is_taken_off_the_next_answer(server, model, request_of, limits):
    """So that it may still be as long as the rest allows."""
    server.does(
        writes(server, 30, ends=False), writes(server, 200, ends=False),
        writes(server, LIMIT, ends=True),
    )  # fmt: skip
    found = model(fallbacks=("n",)).kopt_complete(request_of(PROMPT, max_tokens=LIMIT))
    assert limits() == [LIMIT, LIMIT - 130, LIMIT - 430]
    assert found.finish == "length"
    assert found.usage.total == INPUT + LIMIT


def test_the_responses_api_is_told_the_same(server, model, request_of):
    piece = {"type": "response.output_text.delta", "delta": "y" * 90}
    ended = {"type": "response.completed", "response": {"id": "r"}}
    server.does(server.streams(piece, end=False), server.streams(piece, ended))
    found = model(api="responses").kopt_complete(request_of(PROMPT, max_tokens=LIMIT))
    assert [asked["max_output_tokens"] for asked in server.requests] == [LIMIT, LIMIT - 130]
    assert found.usage.total == 2 * 130


def test_nothing_is_asked_for_a_stub_of_an_answer(server, model, failure_of):
    """It would be cut off, and its input be paid for nothing; the same where another model is."""
    server.does(writes(server, 700, ends=False))
    failure = failure_of(model(fallbacks=("n",)), text=PROMPT, max_tokens=LIMIT)
    assert len(server.requests) == 1
    assert failure.kind == "unavailable"
    assert "broke off" in failure.detail and "one call may cost" in failure.detail
    assert (failure.model, failure.usage.total) == ("m", 800)


def test_money_is_kept_to_where_input_is_dearer_than_output(server, model, request_of, limits):
    server.does(writes(server, 30, ends=False), writes(server, LIMIT, ends=True))
    plugin = model(prices={"m": {"input": 4.0, "output": 1.0}})
    found = plugin.kopt_complete(request_of(PROMPT, max_tokens=LIMIT))
    assert limits() == [LIMIT, LIMIT - 4 * INPUT - 30]
    assert found.usd == pytest.approx((INPUT * 4.0 + LIMIT * 1.0) / 1e6)


def test_the_dearest_model_is_set_aside_for(server, model, request_of, limits):
    """A cheap model's tries leave its fallback what their tokens leave, and no less."""
    server.does(writes(server, 30, ends=False), writes(server, LIMIT, ends=True))
    prices = {"m": {"input": 0.0, "output": 0.0}, "n": {"input": 4.0, "output": 10.0}}
    plugin = model(prices=prices, fallbacks=("n",), retries=0)
    found = plugin.kopt_complete(request_of(PROMPT, max_tokens=LIMIT))
    assert limits() == [LIMIT, LIMIT - INPUT - 30]
    assert found.model == "n"


def test_where_only_input_is_paid_for_it_is_paid_once(server, model, failure_of):
    server.does(writes(server, 1, ends=False))
    plugin = model(prices={"m": {"input": 1.0, "output": 0.0}})
    failure = failure_of(plugin, text=PROMPT, max_tokens=LIMIT)
    assert len(server.requests) == 1
    assert failure.usd == pytest.approx(INPUT / 1e6)


def hangs_up_at_once(handler, body):
    handler.close_connection = True


@pytest.mark.parametrize("failing", [429, 500, 502, 503, "silence"])
def test_tries_that_cost_nothing_are_not_cut_short(
    server, model, request_of, failure_of, limits, failing
):
    """However long the prompt is, and however short the answer may be."""
    fails = hangs_up_at_once if failing == "silence" else server.fails(failing)
    long = {"text": "x" * 30_000, "max_tokens": 5}
    server.does(fails, fails, fails, server.says("yes", usage=(9000, 1)))
    found = model(prices=PRICES).kopt_complete(request_of(**long))
    assert found.usage.total == 9001
    assert limits() == [5] * 4
    server.does(fails)
    failure = failure_of(model(prices=PRICES, retries=3), **long)
    assert len(server.requests) == 4 + 4
    assert "tried 4 times" in failure.detail
    assert (failure.usage.total, failure.usd) == (0, 0.0)


def test_a_fallback_is_asked_where_tries_cost_nothing(server, model, request_of):
    def step(handler, body):
        (server.fails(503) if body["model"] == "m" else server.says("fine"))(handler, body)

    server.does(step)
    found = model(fallbacks=("n",), retries=2).kopt_complete(request_of("x" * 30_000, max_tokens=5))
    assert found.model == "n"
    assert len(server.requests) == 4


def test_free_failures_after_a_dropped_stream_are_tried_as_often(server, model, failure_of):
    server.does(writes(server, 30, ends=False), server.fails(503))
    failure = failure_of(model(retries=3), text=PROMPT, max_tokens=LIMIT)
    assert len(server.requests) == 4
    assert "tried 4 times" in failure.detail
    assert failure.usage.total == INPUT + 30


def test_a_model_that_refuses_a_parameter_has_lost_nothing(server, model, request_of, limits):
    server.does(server.refuses("seed"))
    request = request_of("x" * 30_000, max_tokens=5)
    assert model(seed=1).kopt_complete(request).text == "fine"
    assert limits() == [5, 5]
