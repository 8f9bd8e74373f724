from __future__ import annotations

from collections.abc import Callable

import pytest

from kopt.model.completion import Completion, CompletionFailure, CompletionRequest

Answer = str | Completion | CompletionFailure
Answering = Callable[[CompletionRequest], Answer]


class Answers:
    """A language model whose answers a test writes: equal requests are answered alike."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._known: dict[str, Completion] = {}
        self.asked: list[CompletionRequest] = []
        """Those that were not answered before, in order."""
        self.ahead: list[CompletionRequest] = []
        self.given_up: list[CompletionRequest] = []
        self.outcomes: list[tuple[str, str, bool]] = []
        """Role, outcome and whether it was usable."""

    def complete(self, requests: list[CompletionRequest]) -> list[Completion | CompletionFailure]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: CompletionRequest) -> Completion | CompletionFailure:
        if request.id in self._known:
            return self._known[request.id]
        self.asked.append(request)
        given = self._answering(request)
        answer = Completion(text=given, model="test", finish="stop") if isinstance(given, str) else given  # fmt: skip
        if isinstance(answer, Completion):
            self._known[request.id] = answer
        return answer

    def any_of(
        self, requests: list[CompletionRequest]
    ) -> list[Completion | CompletionFailure | None]:
        return list(self.complete(requests))

    def give_up(self, requests: list[CompletionRequest]) -> None:
        self.given_up += requests

    def prefetch(self, requests: list[CompletionRequest]) -> None:
        self.ahead += requests

    def was(self, request: CompletionRequest, outcome: str, *, usable: bool) -> None:
        self.outcomes.append((request.role, outcome, usable))

    def roles(self) -> list[str]:
        """What was asked for, in order."""
        return [request.role for request in self.asked]


@pytest.fixture(scope="session")
def answers() -> Callable[[Answering], Answers]:
    return Answers
