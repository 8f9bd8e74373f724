"""The contract of language models: each of its tests fails for a plugin that breaks it."""

from __future__ import annotations

import threading

import pytest

import kopt
from kopt.errors import CompletionError
from kopt.model.completion import Completion, CompletionFailure, Price, Usage
from kopt.testing import LlmContract

ANSWERS = "test_it_answers_or_says_why_not"
TWICE = "test_a_request_may_be_made_twice"
THREADS = "test_threads_may_ask_at_a_time"
PRICES = "test_a_price_is_one_or_unknown"


class Good:
    """Has an answer at no price."""

    @kopt.hookimpl
    def kopt_price(self, role: str) -> Price | None:
        return self.price(role)

    @kopt.hookimpl
    def kopt_complete(self, request) -> Completion | None:
        return self.answer(request)

    def price(self, role):
        return Price(model="m", input_usd=1.0, output_usd=2.0)

    def answer(self, request):
        return Completion(text="registers", model="m", usage=Usage(input_tokens=3), usd=3e-6)


class Pending(Good):
    def answer(self, request):
        raise CompletionError(CompletionFailure(kind="pending", detail="write ID.reply.md"))


class NoPrice(Good):
    def price(self, role):
        return None


class AnotherError(Good):
    def answer(self, request):
        raise ConnectionError("refused")


class NotItsOwn(Good):
    def answer(self, request):
        return None


class Speechless(Good):
    def answer(self, request):
        raise CompletionError(CompletionFailure(kind="unavailable", detail=" "))


class Nameless(Good):
    def answer(self, request):
        return Completion(text="registers", model="")


class MoreCachedThanGiven(Good):
    def answer(self, request):
        return Completion(text="x", model="m", usage=Usage(input_tokens=3, cached_tokens=4))


class OnceOnly(Good):
    def __init__(self):
        self.seen = set()

    def answer(self, request):
        if request.id in self.seen:
            raise RuntimeError("I said so already")
        self.seen.add(request.id)
        return super().answer(request)


class OneAtATime(Good):
    def __init__(self):
        self.inside = threading.Lock()
        self.second = threading.Event()

    def answer(self, request):
        if not self.inside.acquire(blocking=False):
            self.second.set()
            raise RuntimeError("busy")
        try:
            if request.sample:
                self.second.wait(5)
            return super().answer(request)
        finally:
            self.inside.release()


class RolesItKnows(Good):
    def price(self, role):
        return {"code": None, "repair": None, "analysis": None}[role]


class MoodyPrice(Good):
    asked = 0

    def price(self, role):
        self.asked += 1
        return Price(model="m", input_usd=self.asked, output_usd=1.0)


@pytest.mark.parametrize(
    ("plugin", "caught"),
    [
        (Good, []), (Pending, []), (NoPrice, []),
        (AnotherError, [TWICE, ANSWERS, THREADS]), (NotItsOwn, [TWICE, ANSWERS, THREADS]),
        (Speechless, [TWICE, ANSWERS, THREADS]), (Nameless, [TWICE, ANSWERS, THREADS]),
        (MoreCachedThanGiven, [TWICE, ANSWERS, THREADS]), (OnceOnly, [TWICE]),
        (OneAtATime, [THREADS]), (RolesItKnows, [PRICES]), (MoodyPrice, [PRICES]),
    ],
)  # fmt: skip
def test_a_model_that_breaks_the_contract_is_caught(plugin, caught):
    case = type("Case", (LlmContract,), {"plugin": lambda self: plugin()})()
    failed = []
    for name in sorted(name for name in dir(case) if name.startswith("test_")):
        try:
            getattr(case, name)()
        except pytest.skip.Exception:
            continue
        except AssertionError:
            failed.append(name)
    assert failed == sorted(caught)
