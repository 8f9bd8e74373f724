"""What an estimate adds up, and what it leaves unknown."""

from __future__ import annotations

import pytest

from kopt.errors import ConfigError, UnknownPluginError
from kopt.estimate import Estimate, ExpectedCost, estimate
from kopt.model.budget import Budget
from kopt.model.completion import ExpectedCalls, Price
from kopt.testing.problems import vector_add

PRICE = Price(model="large", input_usd=2.0, output_usd=10.0)


def cost(price: Price | None = PRICE, calls: int = 5) -> ExpectedCost:
    expected = ExpectedCalls(role="code", calls=calls, input_tokens=3000, output_tokens=1000)
    return ExpectedCost("rewrite", expected, price)


def an_estimate(*costs: ExpectedCost, **limits: float) -> Estimate:
    return Estimate("openai", costs, Budget.model_validate(limits), "", ())


def test_sums() -> None:
    found = an_estimate(cost(), cost(calls=3))
    assert (found.calls, found.tokens) == (8, 32_000)
    assert found.usd == pytest.approx(8 * (3000 * 2 + 1000 * 10) / 1e6)


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    found = an_estimate(cost(), cost(None))
    assert (found.tokens, found.usd) == (40_000, None)
    assert found.costs[0].usd == pytest.approx(0.08)


def test_what_limits_allow() -> None:
    assert an_estimate(cost()).shares == {}
    assert an_estimate(cost(), tokens=5000, usd=1).shares == {"tokens": 0.25, "usd": 1.0}
    assert an_estimate(cost(), usd=0.02).shares == {"usd": pytest.approx(0.25)}
    assert an_estimate(cost(None), usd=0.02, tokens=10).shares == {"tokens": 0.0005}
    assert an_estimate(tokens=10).shares == {"tokens": 1.0}


def test_without_a_model_nothing_is_opened() -> None:
    """The reference cannot even run: it is never asked."""
    from kopt.config import resolve

    problem = vector_add()
    broken = problem.reference.model_copy(update={"source": "raise SystemExit(1)"})
    settings = resolve({"device": "cpu", "backend": "cpp"})
    found = estimate(problem.model_copy(update={"reference": broken}), settings)
    assert (found.model, found.costs, found.refused) == (None, (), "")


def test_a_model_that_is_not_installed_is_an_error() -> None:
    from kopt.config import resolve

    settings = resolve({"device": "cpu", "backend": "cpp", "llm": "mailbx"})
    with pytest.raises(UnknownPluginError, match="mailbox"):
        estimate(vector_add(), settings)
    idle = resolve({"device": "cpu", "backend": "cpp"}, ["llm.mailbox.wait=1m"])
    with pytest.raises(ConfigError, match=r"llm\.mailbox"):
        estimate(vector_add(), idle)
