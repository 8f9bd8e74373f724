"""Through kopt's own accounts: caps hold to within one call, and failures are counted."""

from __future__ import annotations

import pytest

from kopt.hooks import Hooks
from kopt.metering import MeteredModel
from kopt.model.budget import Budget, Spend
from kopt.model.completion import Completion
from kopt.plugins.loader import adopt
from kopt.runs.completions import CompletionStore
from kopt.runs.events import ModelStopped, Spent

PRICES = {"m": {"input": 100.0, "output": 1000.0}}
PROMPT, LIMIT = "x" * 300, 50
ONE_TOKENS = 100 + LIMIT
ONE_USD = (100 * 100.0 + LIMIT * 1000.0) / 1e6


class Run:
    """What a session is to a MeteredModel."""

    def __init__(self, plugin, folder, budget):
        self.events = []
        self.model = MeteredModel(
            Hooks([adopt("llm", plugin)]), budget,
            lambda: Spend(tokens=self.model.tokens, usd=self.model.usd), self.events.append,
            CompletionStore(folder / "completions"), lambda text: None,
        )  # fmt: skip

    def spent(self):
        return [event for event in self.events if isinstance(event, Spent)]

    def stopped(self):
        return [event.reason for event in self.events if isinstance(event, ModelStopped)]


@pytest.fixture
def ask_40(request_of):
    return lambda run: run.model.complete(
        [request_of(PROMPT, max_tokens=LIMIT, sample=number) for number in range(40)]
    )


@pytest.mark.parametrize("usage", [(100, LIMIT), None])
@pytest.mark.parametrize(
    ("budget", "one"),
    [
        (Budget(tokens=10 * ONE_TOKENS + 20), ONE_TOKENS),
        (Budget(usd=10.3 * ONE_USD), ONE_USD),
    ],
)
def test_caps_hold_to_within_one_call(server, model, tmp_path, ask_40, budget, one, usage):
    """With 8 requests at a time, whether the endpoint reports usage or not."""
    server.does(server.says("y" * 3 * LIMIT, usage=usage, gap=0.001))
    run = Run(model(prices=PRICES), tmp_path, budget)
    answers = ask_40(run)
    used, limit = (
        (run.model.tokens, budget.tokens) if budget.tokens else (run.model.usd, budget.usd)
    )
    assert limit <= used + one  # it is used up as far as a whole call still fits ...
    assert used <= limit + one  # ... and passed by one call at most
    answered = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(server.requests) == len(answered) == len(run.spent())
    assert {answer.kind for answer in answers if answer not in answered} == {"budget"}


def test_dropped_streams_count_against_the_cap(server, model, tmp_path, ask_40):
    """A request whose failed try used as much as an answer may is not tried again."""
    server.does(server.hangs_up("y" * 3 * LIMIT))
    run = Run(
        model(prices={**PRICES, "n": PRICES["m"]}, fallbacks=("n",)),
        tmp_path,
        Budget(usd=2.3 * ONE_USD),
    )
    ask_40(run)
    assert run.model.usd == pytest.approx(len(server.requests) * ONE_USD)
    assert len(server.requests) <= 4


@pytest.mark.parametrize("fallbacks", [(), ("n",)])
@pytest.mark.parametrize("limited", ["usd", "tokens"])
def test_streams_that_drop_early_are_paid_for_once(
    server, model, tmp_path, request_of, limited, fallbacks
):
    """Each try pays for the prompt, however little it writes: a long prompt is not sent again."""
    server.does(server.hangs_up("y" * 8))
    tokens = 10_000 + LIMIT
    one = {"tokens": tokens, "usd": (10_000 * 100.0 + LIMIT * 1000.0) / 1e6}[limited]
    cap = int(2.3 * one) if limited == "tokens" else 2.3 * one
    plugin = model(prices={**PRICES, "n": PRICES["m"]}, fallbacks=fallbacks)
    run = Run(plugin, tmp_path, Budget(**{limited: cap}))
    run.model.complete(
        [request_of("x" * 30_000, max_tokens=LIMIT, sample=number) for number in range(40)]
    )
    assert {"usd": run.model.usd, "tokens": run.model.tokens}[limited] <= cap + one
    assert len(server.requests) == len(run.spent())
    for spent in run.spent():
        assert spent.outcome == "unavailable"
        assert (spent.usage.input_tokens, spent.usage.total) == (10_000, 10_003)


@pytest.mark.parametrize("status", [401, 503])
def test_an_endpoint_that_only_fails_is_asked_a_few_times(server, model, tmp_path, ask_40, status):
    server.does(server.fails(status, "no"))
    run = Run(model(retries=1), tmp_path, Budget())
    answers = ask_40(run)
    [reason] = run.stopped()
    assert str(status) in reason
    assert len(server.requests) <= 2 * 12
    assert {answer.kind for answer in answers} == {"unavailable", "stopped"}


def test_a_quota_that_is_gone_stops_at_once(server, model, tmp_path, ask_40):
    server.does(server.fails(429, "no money", code="insufficient_quota"))
    run = Run(model(), tmp_path, Budget())
    ask_40(run)
    assert len(server.requests) <= 9
    assert "quota" in run.stopped()[0]


def test_an_unknown_price_is_not_zero(server, model, tmp_path, ask_40):
    """Where money is limited, nobody is asked whose price is not known."""
    server.does(server.says(usage=(100, LIMIT)))
    run = Run(model(), tmp_path, Budget(usd=1000.0))
    answers = ask_40(run)
    assert not server.requests
    assert not run.spent()
    assert {answer.kind for answer in answers} == {"budget"}
    assert all("price" in answer.detail for answer in answers)
