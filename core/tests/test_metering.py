"""The run's language model: parallel, counted, capped, remembered, and stopped where it must be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kopt
from kopt.errors import CompletionError, ConfigError, RunPausedError, RunStoreError
from kopt.hooks import Hooks
from kopt.loading import refuse_unmetered
from kopt.metering import (
    AT_A_TIME,
    FAILURES_TO_STOP,
    UNUSABLE_TO_STOP,
    MeteredModel,
    most_tokens,
)
from kopt.model.budget import Budget, Spend
from kopt.model.completion import (
    Completion,
    CompletionFailure,
    CompletionRequest,
    FailureKind,
    Message,
    Price,
    Usage,
)
from kopt.plugins.loader import adopt
from kopt.runs.completions import CompletionStore, read_exchange
from kopt.runs.events import ModelStopped, ReplyRead, Spent
from kopt.testing.processes import eventually

Event = Spent | ReplyRead | ModelStopped
USED = Usage(input_tokens=10, output_tokens=90)


def request(text: str, *, max_tokens: int = 90, role: str = "code") -> CompletionRequest:
    return CompletionRequest(
        messages=(Message(role="user", content=text),), max_tokens=max_tokens, role=role
    )


class Scripted:
    """Answers with what a function returns or raises, and counts."""

    def __init__(
        self, answer: Callable[[CompletionRequest], Completion], price: Price | None
    ) -> None:
        self.answer, self.price = answer, price
        self.asked: list[str] = []
        self.flying, self.most = 0, 0
        self.lock = threading.Lock()

    @kopt.hookimpl
    def kopt_price(self, role: str) -> Price | None:
        return self.price

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        with self.lock:
            self.asked.append(request.messages[0].content)
            self.flying += 1
            self.most = max(self.most, self.flying)
        try:
            return self.answer(request)
        finally:
            with self.lock:
                self.flying -= 1


def echo(asked: CompletionRequest) -> Completion:
    return Completion(text=asked.messages[0].content, model="m", usage=USED, usd=0.25)


def failing(kind: FailureKind) -> Callable[[CompletionRequest], Completion]:
    def fail(asked: CompletionRequest) -> Completion:
        raise CompletionError(CompletionFailure(kind=kind, detail="down", usage=Usage(), usd=0.0))

    return fail


class Bench:
    """A metered model over one scripted plugin, with what it recorded."""

    def __init__(
        self,
        folder: Path,
        answer: Callable[[CompletionRequest], Completion] = echo,
        *,
        budget: Budget | None = None,
        price: Price | None = None,
        carried: Spend | None = None,
    ) -> None:
        self.plugin = Scripted(answer, price)
        self.events: list[Event] = []
        self.said: list[str] = []
        self.store = CompletionStore(folder / "completions")
        before = carried or Spend()
        self.model = MeteredModel(
            Hooks([adopt("llm", self.plugin, [])]), budget or Budget(),
            lambda: before.model_copy(update={
                "tokens": before.tokens + self.model.tokens, "usd": before.usd + self.model.usd,
            }),
            self.events.append, self.store, self.said.append,
        )  # fmt: skip

    def spent(self) -> list[Spent]:
        return [event for event in self.events if isinstance(event, Spent)]

    def ask(self, *texts: str) -> list[str]:
        """Return each answer's text, or the kind of its failure."""
        answers = self.model.complete([request(text) for text in texts])
        return [a.text if isinstance(a, Completion) else a.kind for a in answers]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    yield lambda *arguments, **keywords: Bench(tmp_path, *arguments, **keywords)


def test_answers_come_in_order_and_are_asked_at_the_same_time(bench: Callable[..., Bench]) -> None:
    together = threading.Barrier(3, timeout=20)

    def slow(asked: CompletionRequest) -> Completion:
        together.wait()  # broken, and so a failure, unless all three are in flight
        return echo(asked)

    found = bench(slow)
    assert found.ask("a", "b", "c") == ["a", "b", "c"]
    assert found.plugin.most == 3
    assert (found.model.tokens, found.model.usd) == (300, 0.75)
    assert [event.outcome for event in found.spent()] == ["answered"] * 3


def test_no_more_than_a_few_are_in_flight(bench: Callable[..., Bench]) -> None:
    def slow(asked: CompletionRequest) -> Completion:
        time.sleep(0.02)
        return echo(asked)

    found = bench(slow)
    texts = [str(n) for n in range(3 * AT_A_TIME)]
    assert found.ask(*texts) == texts
    assert found.plugin.most <= AT_A_TIME


def test_an_answer_is_remembered_by_the_run(bench: Callable[..., Bench], tmp_path: Path) -> None:
    first = bench()
    assert first.ask("a", "a") == ["a", "a"]
    assert first.ask("a") == ["a"]
    again = bench(failing("unavailable"))
    assert again.ask("a") == ["a"]
    assert first.plugin.asked == ["a"]
    assert again.plugin.asked == []
    assert again.events == []
    kept = read_exchange(tmp_path / "completions" / f"{request('a').id}.json")
    assert (kept.request, kept.completion) == (request("a"), echo(request("a")))


def test_a_damaged_memory_is_an_error_with_a_way_out(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    assert bench().ask("a") == ["a"]
    (tmp_path / "completions" / f"{request('a').id}.json").write_text("{")
    with pytest.raises(RunStoreError, match="remove it to have the model asked again"):
        bench().ask("a")


def test_a_failure_is_counted_and_not_remembered(bench: Callable[..., Bench]) -> None:
    kinds = iter(["unavailable"])

    def once(asked: CompletionRequest) -> Completion:
        if next(kinds, None):
            usage = Usage(input_tokens=7)
            failure = CompletionFailure(kind="unavailable", detail="x", usage=usage, usd=0.5)
            raise CompletionError(failure)
        return echo(asked)

    found = bench(once)
    assert found.ask("a") == ["unavailable"]
    assert (found.model.tokens, found.model.usd) == (7, 0.5)
    assert found.ask("a") == ["a"]
    assert [event.outcome for event in found.spent()] == ["unavailable", "answered"]


def test_a_plugin_that_raises_anything_is_a_failure(bench: Callable[..., Bench]) -> None:
    def broken(asked: CompletionRequest) -> Completion:
        raise SystemExit(3)

    found = bench(broken)
    assert found.ask("a") == ["unavailable"]


@pytest.mark.parametrize("parallel", [1, 4, 20])
@pytest.mark.parametrize("limit", [1, 150, 1000])
def test_a_limit_on_tokens_holds_to_within_one_request(
    bench: Callable[..., Bench], parallel: int, limit: int
) -> None:
    found = bench(budget=Budget(tokens=limit))
    answers = []
    for start in range(0, 20, parallel):
        answers += found.ask(*(str(n) for n in range(start, start + parallel)))
    assert limit <= found.model.tokens < limit + most_tokens(request("10"))
    assert answers.count("budget") == 20 - len(found.plugin.asked)
    assert found.ask("one more") == ["budget"]


def test_a_limit_on_money_holds_to_within_one_request(bench: Callable[..., Bench]) -> None:
    price = Price(model="m", input_usd=0.0, output_usd=0.25e6 / 90)
    found = bench(budget=Budget(usd=1.1), price=price)
    assert found.ask(*(str(n) for n in range(9))).count("budget") == 4
    assert found.model.usd == 1.25


def test_what_an_earlier_part_spent_counts(bench: Callable[..., Bench]) -> None:
    found = bench(budget=Budget(tokens=1000), carried=Spend(tokens=1000))
    assert found.ask("a") == ["budget"]
    assert found.plugin.asked == []


def test_the_user_is_warned_once_at_half_and_at_four_fifths(bench: Callable[..., Bench]) -> None:
    free = Price(model="m", input_usd=0.0, output_usd=0.0)
    found = bench(budget=Budget(tokens=1000, usd=100), price=free)
    for n in range(9):
        found.ask(str(n))
    assert found.said == [
        "50% of the budget: 500 tokens of 1,000 tokens",
        "80% of the budget: 800 tokens of 1,000 tokens",
    ]


def test_money_that_cannot_be_counted_ends_the_asking(bench: Callable[..., Bench]) -> None:
    def unpriced(asked: CompletionRequest) -> Completion:
        return Completion(text="x", model="new", usage=USED)

    known = Price(model="old", input_usd=1.0, output_usd=1.0)
    found = bench(unpriced, budget=Budget(usd=5.0), price=known)
    assert found.ask("a") == ["x"]
    assert found.ask("b") == ["stopped"]
    assert found.model.stopped is not None
    assert "price of model 'new' is unknown" in found.model.stopped


def test_tokens_without_a_price_are_told_apart(bench: Callable[..., Bench]) -> None:
    def answer(asked: CompletionRequest) -> Completion:
        usd = None if asked.messages[0].content == "a" else 0.25
        return Completion(text="x", model="m", usage=USED, usd=usd)

    found = bench(answer)
    found.ask("a", "b")
    assert (found.model.tokens, found.model.unpriced_tokens, found.model.usd) == (200, 100, 0.25)


def test_a_role_without_a_price_is_not_asked_where_money_is_limited(
    bench: Callable[..., Bench],
) -> None:
    found = bench(budget=Budget(usd=5.0))
    assert found.ask("a", "b") == ["budget", "budget"]
    assert found.plugin.asked == []


@pytest.mark.parametrize("kind", ["unavailable", "timeout", "rate-limited"])
def test_an_endpoint_that_is_down_is_left_alone(
    bench: Callable[..., Bench], kind: FailureKind
) -> None:
    found = bench(failing(kind))
    answers = [found.ask(str(n))[0] for n in range(FAILURES_TO_STOP + 2)]
    assert answers == [kind] * FAILURES_TO_STOP + ["stopped"] * 2
    assert len(found.plugin.asked) == FAILURES_TO_STOP
    assert isinstance(found.events[-1], ModelStopped)


def test_a_used_up_quota_ends_the_asking_at_once(bench: Callable[..., Bench]) -> None:
    found = bench(failing("quota"))
    assert [found.ask("a"), found.ask("b")] == [["quota"], ["stopped"]]


def test_answers_that_are_good_for_nothing_end_the_asking(bench: Callable[..., Bench]) -> None:
    found = bench()
    for n in range(UNUSABLE_TO_STOP - 1):
        found.model.was(request(str(n)), "refusal", usable=False)
    found.model.was(request("x"), "candidate", usable=True)
    assert found.model.stopped is None
    for n in range(UNUSABLE_TO_STOP):
        found.model.was(request(str(n)), "refusal", usable=False)
    assert found.model.stopped is not None
    assert "the last: refusal" in found.model.stopped
    assert found.ask("a") == ["stopped"]


def test_ideas_alone_are_of_no_use(bench: Callable[..., Bench]) -> None:
    """Good ideas whose code was refused each time were asked for without an end."""
    found = bench()
    for n in range(UNUSABLE_TO_STOP):
        assert found.model.stopped is None
        found.model.was(request(f"ideas {n}", role="analysis"), "ideas", usable=True)
        found.model.was(request(str(n)), "refusal", usable=False)
    assert found.model.stopped is not None


@pytest.mark.parametrize(
    ("kind", "most"),
    [("invalid", FAILURES_TO_STOP), ("filtered", UNUSABLE_TO_STOP),
     ("context-overflow", UNUSABLE_TO_STOP)],
)  # fmt: skip
def test_failures_of_every_kind_end_the_asking(
    bench: Callable[..., Bench], kind: FailureKind, most: int
) -> None:
    found = bench(failing(kind))
    for n in range(most):
        assert found.ask(str(n)) == [kind]
    assert found.ask("one more") == ["stopped"]


def test_what_has_come_is_counted_and_kept_without_being_asked_for(
    bench: Callable[..., Bench],
) -> None:
    """An interrupted run forgot answers that were there, and paid for them again."""
    for count in (lambda model: model.settle(0.0), lambda model: model.take()):
        found = bench()
        found.model.prefetch([request(f"{id(count)} {n}") for n in range(3)])
        assert eventually(lambda found=found: found.model._done.qsize() == 3, 10.0)
        count(found.model)
        assert (found.model.tokens, len(found.spent())) == (300, 3)
        assert found.store.load(request(f"{id(count)} 0")) is not None


def test_an_answer_to_be_waited_for_pauses_the_run_and_keeps_the_others(
    bench: Callable[..., Bench],
) -> None:
    def mixed(asked: CompletionRequest) -> Completion:
        if asked.messages[0].content == "later":
            failing("pending")(asked)
        return echo(asked)

    found = bench(mixed)
    with pytest.raises(RunPausedError, match="1 of 2 answers have still to be written: down"):
        found.ask("now", "later")
    assert [event.outcome for event in found.spent()] == ["answered"]
    assert found.store.load(request("now")) is not None


def test_what_was_begun_ahead_is_collected_later(bench: Callable[..., Bench]) -> None:
    found = bench()
    found.model.prefetch([request("a"), request("b")])
    assert found.ask("b", "a") == ["b", "a"]
    assert sorted(found.plugin.asked) == ["a", "b"]


def test_what_was_begun_and_never_collected_is_counted_at_the_end(
    bench: Callable[..., Bench],
) -> None:
    found = bench()
    found.model.prefetch([request("a")])
    found.model.settle(20)
    assert found.model.tokens == 100
    assert found.store.load(request("a")) is not None


def test_half_a_surrogate_pair_can_be_kept(bench: Callable[..., Bench]) -> None:
    found = bench(lambda asked: Completion(text="a\ud800b", model="m"))
    assert found.ask("a") == ["a?b"]
    assert found.store.load(request("a")) is not None


class Needy:
    """A strategy that cannot work without a language model."""

    needs_llm = True

    @kopt.hookimpl
    def kopt_propose(self) -> list[kopt.Candidate]:
        return []


def test_a_strategy_that_needs_a_model_is_refused_without_one() -> None:
    with pytest.raises(ConfigError, match="needs a language model; name one with --llm"):
        refuse_unmetered(Hooks([adopt("strategy", Needy(), [])]), Budget())
    both = [adopt("strategy", Needy(), []), adopt("llm", Scripted(echo, None), [])]
    refuse_unmetered(Hooks(both), Budget(tokens=5))
    with pytest.raises(ConfigError, match="nobody knows what this language model costs"):
        refuse_unmetered(Hooks(both), Budget(usd=5))


def test_what_tokens_cost() -> None:
    price = Price(model="m", input_usd=2.0, output_usd=8.0, cached_usd=0.5)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=500_000)
    assert price.of(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 8)
    assert Price(model="m", input_usd=2.0, output_usd=0.0).of(usage) == pytest.approx(2.0)


# --- the first of several ---


class Slow:
    """Answers at once, or when it is told to, or gives up."""

    def __init__(self) -> None:
        self.may_answer = {name: threading.Event() for name in ("slow", "slower")}
        self.given_up: list[str] = []

    @kopt.hookimpl
    def kopt_complete(self, request: CompletionRequest) -> Completion:
        name = request.messages[0].content
        if name in self.may_answer:
            assert self.may_answer[name].wait(20)
        if name in self.given_up:
            failure = CompletionFailure(kind="stopped", detail="given up", usage=USED, usd=0.5)
            raise CompletionError(failure)
        if name == "broken":
            raise CompletionError(CompletionFailure(kind="invalid", detail="no"))
        return echo(request)

    @kopt.hookimpl
    def kopt_give_up(self, request: CompletionRequest) -> None:
        self.given_up.append(request.messages[0].content)
        self.may_answer[self.given_up[-1]].set()


class TestTheFirstOfSeveral:
    def bench(self, tmp_path: Path) -> tuple[Bench, Slow]:
        bench, slow = Bench(tmp_path), Slow()
        bench.model._hooks = Hooks([adopt("llm", slow, [])])
        return bench, slow

    def test_one_is_enough_and_the_others_come_later(self, tmp_path: Path) -> None:
        bench, slow = self.bench(tmp_path)
        requests = [request("slow"), request("quick"), request("slower")]
        first, second, third = bench.model.any_of(requests)
        assert (first, third) == (None, None)
        assert isinstance(second, Completion) and second.text == "quick"
        slow.may_answer["slow"].set()
        (again,) = bench.model.any_of([requests[0]])
        assert isinstance(again, Completion) and again.text == "slow"
        slow.may_answer["slower"].set()
        assert [a.text for a in bench.model.complete(requests)] == ["slow", "quick", "slower"]
        assert len(bench.spent()) == 3

    def test_failures_alone_are_waited_past(self, tmp_path: Path) -> None:
        bench, slow = self.bench(tmp_path)
        threading.Timer(0.2, slow.may_answer["slow"].set).start()
        broken, answered = bench.model.any_of([request("broken"), request("slow")])
        assert isinstance(broken, CompletionFailure) and broken.kind == "invalid"
        assert isinstance(answered, Completion)

    def test_where_all_fail_all_say_why(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, failing("invalid"))
        answers = bench.model.any_of([request("a"), request("b")])
        assert [getattr(answer, "kind", None) for answer in answers] == ["invalid"] * 2

    def test_a_budget_that_is_used_up_is_an_answer(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, budget=Budget(tokens=5), carried=Spend(tokens=9))
        answers = bench.model.any_of([request("a"), request("b")])
        assert [getattr(answer, "kind", None) for answer in answers] == ["budget"] * 2

    def test_what_is_written_need_not_wait_for_letters(self, tmp_path: Path) -> None:
        def answer(asked: CompletionRequest) -> Completion:
            return echo(asked) if asked.messages[0].content == "here" else failing("pending")(asked)

        bench = Bench(tmp_path, answer)
        written, _ = bench.model.any_of([request("here"), request("letter")])
        assert isinstance(written, Completion)
        with pytest.raises(RunPausedError):
            bench.model.any_of([request("letter"), request("another")])

    def test_what_is_given_up_ends_and_counts(self, tmp_path: Path) -> None:
        bench, slow = self.bench(tmp_path)
        requests = [request("slow"), request("quick"), request("slower")]
        bench.model.any_of(requests)
        bench.model.give_up(requests)
        bench.model.settle(20.0)
        assert sorted(slow.given_up) == ["slow", "slower"]
        outcomes = sorted(event.outcome for event in bench.spent())
        assert outcomes == ["answered", "stopped", "stopped"]
        assert bench.model.usd == pytest.approx(0.25 + 2 * 0.5)
        assert bench.model.stopped is None

    def test_what_was_not_begun_is_never_asked(self, tmp_path: Path) -> None:
        bench, slow = self.bench(tmp_path)
        waiting = [request("slow")] + [request(f"more {n}") for n in range(3)]
        bench.model.prefetch([request("slower")] * 1)
        bench.model._waiting.extend(waiting[1:])
        bench.model.give_up(waiting)
        slow.may_answer["slower"].set()
        bench.model.settle(20.0)
        assert len(bench.spent()) == 1, "which is ended, or answered after all"

    def test_an_end_waits_for_bills_and_not_for_answers(self, tmp_path: Path) -> None:
        bench, slow = self.bench(tmp_path)
        bench.model.prefetch([request("slow"), request("slower")])
        bench.model.settle(20.0)
        assert sorted(slow.given_up) == ["slow", "slower"]
        assert [event.outcome for event in bench.spent()] == ["stopped", "stopped"]
        assert bench.model.usd == pytest.approx(2 * 0.5)
