"""What a language model plugin has to do (needs pytest)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from kopt.errors import CompletionError
from kopt.hooks import Hooks
from kopt.model.completion import (
    Completion,
    CompletionFailure,
    CompletionRequest,
    Message,
    Price,
    Usage,
)
from kopt.testing.plugin import PluginContract

_THREADS = 8
_ROLES = ("code", "repair", "analysis", "a-role-that-nobody-knows")


class LlmContract(PluginContract):
    """A model answers a request, or says by CompletionError why not, and what either cost.

    ``plugin()`` must return one that can be asked here: point it at a local server, at a file or
    at a folder. Whether it has an answer is its own business; a mailbox says ``pending``.
    """

    role: ClassVar[str] = "llm"

    def request(self, number: int) -> CompletionRequest:
        """Return a request, another one for each number; override where only some are answered."""
        return CompletionRequest(
            messages=(
                Message(role="system", content="You answer in one word."),
                Message(role="user", content="Which memory is the fastest?"),
            ),
            purpose="a contract's test",
            max_tokens=16,
            sample=number,
        )

    def test_it_answers_or_says_why_not(self) -> None:
        """No other exception leaves it, and what it says is complete."""
        hooks = self.hooks()
        _check(_ask(hooks, self.request(0)))
        assert hooks.failures == []

    def test_a_request_may_be_made_twice(self) -> None:
        """A failure is asked again, and a second run asks what a first one did."""
        hooks = self.hooks()
        for _ in range(2):
            _check(_ask(hooks, self.request(0)))
        assert hooks.failures == []

    def test_threads_may_ask_at_a_time(self) -> None:
        """A run has several requests in flight."""
        hooks = self.hooks()
        requests = [self.request(number) for number in range(_THREADS)]
        with ThreadPoolExecutor(_THREADS) as threads:
            for outcome in threads.map(lambda request: _ask(hooks, request), requests):
                _check(outcome)
        assert hooks.failures == []

    def test_a_price_is_one_or_unknown(self) -> None:
        """For any role, also one that it has never heard of; the same each time."""
        hooks = self.hooks()
        for role in _ROLES:
            price = hooks.kopt_price(role)
            assert price is None or (isinstance(price, Price) and price.model)
            assert hooks.kopt_price(role) == price
        assert hooks.failures == []


def _ask(hooks: Hooks, request: CompletionRequest) -> Completion | CompletionFailure | None:
    try:
        return hooks.kopt_complete(request)
    except CompletionError as error:
        return error.failure


def _check(outcome: Completion | CompletionFailure | None) -> None:
    """Fail where an outcome lacks something that accounts or a person need."""
    assert outcome is not None, "its own request was left to other models"
    usage: Usage = outcome.usage
    assert usage.cached_tokens <= usage.input_tokens
    assert usage.reasoning_tokens <= usage.output_tokens
    assert outcome.usd is None or outcome.usd >= 0
    if isinstance(outcome, CompletionFailure):
        assert outcome.detail.strip(), "a failure says what happened and what to do next"
    else:
        assert outcome.model, "an answer names its model"
