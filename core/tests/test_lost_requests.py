"""Requests whose bill never came: what they may have cost is on the disk before they are sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kopt
from kopt.cli.accounts_table import accounts_of
from kopt.hooks import Hooks
from kopt.metering import MeteredModel, most_tokens
from kopt.model.budget import Budget, Spend
from kopt.model.completion import Completion, CompletionRequest, Message, Price, Usage
from kopt.plugins.loader import adopt
from kopt.runs.completions import CompletionStore
from kopt.runs.events import Asked, Finished, ModelStopped, ReplyRead, Spent, unsettled

Event = Asked | Spent | ReplyRead | ModelStopped
PRICE = Price(model="large", input_usd=2.0, output_usd=10.0)
USED = Usage(input_tokens=10, output_tokens=5)


def request(text: str) -> CompletionRequest:
    return CompletionRequest(messages=(Message(role="user", content=text),), max_tokens=90)


class Endpoint:
    """Answers once it may; notes what was recorded as each request came."""

    def __init__(self, price: Price | None = PRICE) -> None:
        self.price = price
        self.may_answer = threading.Event()
        self.events: list[Event] = []
        self.recorded: list[list[Event]] = []

    @kopt.hookimpl
    def kopt_price(self) -> Price | None:
        return self.price

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        self.recorded.append(list(self.events))
        self.may_answer.wait(30)
        return Completion(text="fine", model="large", usage=USED, usd=0.5)


class Letters(Endpoint):
    """Whoever is asked has the request on paper."""

    keeps_requests = True


class Bench:
    """A metered model whose events are kept as a journal would."""

    def __init__(self, folder: Path, endpoint: Endpoint, budget: Budget | None = None) -> None:
        self.endpoint, self.store = endpoint, CompletionStore(folder / "completions")
        self.model = MeteredModel(
            Hooks([adopt("llm", endpoint, [])]), budget or Budget(),
            lambda: Spend(tokens=self.model.tokens, usd=self.model.usd), endpoint.events.append,
            self.store, lambda text: None,
        )  # fmt: skip

    @property
    def events(self) -> list[Event]:
        return self.endpoint.events


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.may_answer.set()


def most(asked: CompletionRequest) -> float:
    return ((most_tokens(asked) - 90) * 2.0 + 90 * 10.0) / 1e6


def test_what_it_may_cost_is_recorded_before_it_is_sent(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.may_answer.set()
    bench = Bench(tmp_path, endpoint)
    bench.model.complete([request("a")])
    [before] = endpoint.recorded
    [asked] = [event for event in before if isinstance(event, Asked)]
    assert asked.request == request("a").id
    assert asked.usage.total == most_tokens(request("a"))
    assert asked.usd == pytest.approx(most(request("a")))
    assert unsettled(before) == (asked,)
    assert unsettled(bench.events) == ()
    assert bench.model.usd == 0.5


def test_an_end_that_waits_no_longer_counts_the_most(tmp_path: Path, endpoint: Endpoint) -> None:
    bench = Bench(tmp_path, endpoint)
    bench.model.prefetch([request("a"), request("b")])
    bench.model.settle(0.1)
    assert unsettled(bench.events) == ()
    lost = [event for event in bench.events if isinstance(event, Spent)]
    assert [event.outcome for event in lost] == ["lost", "lost"]
    assert bench.model.tokens == 2 * most_tokens(request("a"))
    assert bench.model.usd == pytest.approx(2 * most(request("a")))
    assert all(event.usage.estimated and event.detail for event in lost)


def test_an_answer_that_is_on_the_disk_is_counted_as_it_was(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    """The process was killed between keeping the answer and writing the bill."""
    bench = Bench(tmp_path, endpoint)
    asked = Asked(request=request("a").id, role="code", usage=Usage(output_tokens=90), usd=9.0)
    answer = Completion(text="fine", model="large", usage=USED, usd=0.5)
    bench.store.keep(request("a"), answer)
    bench.model.count_lost([asked])
    [spent] = bench.events
    assert isinstance(spent, Spent)
    assert (spent.outcome, spent.usd, spent.usage, spent.model) == ("answered", 0.5, USED, "large")
    assert (bench.model.tokens, bench.model.usd) == (USED.total, 0.5)


def test_what_is_lost_leaves_less_of_a_limit(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.may_answer.set()
    bench = Bench(tmp_path, endpoint, Budget(tokens=100))
    bench.model.count_lost([Asked(request="x", usage=Usage(output_tokens=100), usd=None)])
    [answer] = bench.model.complete([request("a")])
    assert getattr(answer, "kind", None) == "budget"
    assert endpoint.recorded == []
    assert (bench.model.tokens, bench.model.unpriced_tokens, bench.model.usd) == (100, 100, 0.0)


def test_an_unknown_price_stays_unknown(tmp_path: Path) -> None:
    endpoint = Endpoint(price=None)
    bench = Bench(tmp_path, endpoint)
    bench.model.prefetch([request("a")])
    bench.model.settle(0.1)
    endpoint.may_answer.set()
    [asked, spent] = bench.events
    assert isinstance(asked, Asked) and isinstance(spent, Spent)
    assert (asked.usd, spent.usd, bench.model.usd) == (None, None, 0.0)
    assert bench.model.unpriced_tokens == most_tokens(request("a"))


def test_what_can_be_asked_again_at_no_cost_is_never_lost(tmp_path: Path) -> None:
    endpoint = Letters()
    bench = Bench(tmp_path, endpoint)
    bench.model.prefetch([request("a")])
    bench.model.settle(0.1)
    endpoint.may_answer.set()
    assert bench.events == []


def test_a_run_that_ended_owes_nothing() -> None:
    a, b = (Asked(request=name, usage=USED, usd=0.1) for name in "ab")
    paid = Spent(request="a", tokens=1, usd=0.1)
    assert unsettled([a, b, paid]) == (b,)
    assert unsettled([a, paid, a]) == (a,), "it was asked once more"
    assert unsettled([a, Finished(status="interrupted")]) == ()


def test_accounts_name_what_has_no_bill() -> None:
    asked = Asked(request="a", role="code", usage=USED, usd=0.1)
    before = accounts_of([asked])
    assert before is not None
    assert (before.rows, before.unsettled) == ((), (asked,))
    lost = Spent(request="a", role="code", tokens=15, usage=USED, usd=0.1, outcome="lost")
    after = accounts_of([asked, lost])
    assert after is not None
    assert (after.unsettled, dict(after.total.failures)) == ((), {"lost": 1})
    assert after.total.usd == pytest.approx(0.1)
