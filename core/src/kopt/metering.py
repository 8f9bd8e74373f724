"""A run's language model: asked in parallel, counted, kept within the budget, and remembered."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kopt.errors import CompletionError, RunPausedError
from kopt.hooks import Hooks
from kopt.logs import get_logger
from kopt.model.budget import Budget, Spend
from kopt.model.completion import (
    Completion,
    CompletionFailure,
    CompletionRequest,
    Price,
    Usage,
)
from kopt.runs.completions import CompletionStore
from kopt.runs.events import Asked, ModelStopped, ReplyRead, Spent

Answer = Completion | CompletionFailure

FAILURES_TO_STOP = 3
"""Requests in a row to which an endpoint gave no answer."""
UNUSABLE_TO_STOP = 8
"""Answers in a row that were good for nothing."""
AT_A_TIME = 8
"""Requests in flight."""
_BREAKING = ("unavailable", "timeout", "rate-limited", "quota", "invalid")
"""Failures of an endpoint, whatever it was asked."""
_REFUSING = ("filtered", "context-overflow")
"""Failures of a request, which are of as little use as an answer without a kernel."""
_THINKING = ("analysis", "reflection", "judge")
"""Roles whose answers are no candidates: ideas are of use only if some code comes of them."""
_CHARACTERS_PER_TOKEN = 3
"""Fewer than any tokenizer has of source code, so that an estimate is not too low."""
_PER_MESSAGE = 16
"""Tokens that a chat template puts around a message, at most."""
_LAST_SECONDS = 30.0
_LOST = "kopt's process ended before the bill came; counted is the most that it may have cost"
_WARN_AT = (0.8, 0.5)

_log = get_logger(__name__)


class _Outcome(NamedTuple):
    """What a thread brings back."""

    request: CompletionRequest
    answer: Answer
    seconds: float
    asked: float
    """In seconds since 1970."""


def estimated_tokens(characters: int) -> int:
    """Return about how many tokens a text has, rather too many than too few."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


class MeteredModel:
    """See kopt.model.completion.LanguageModel.

    Threads ask; only the thread that calls records. A request is begun while what has been spent
    and what requests in flight may cost at most is below the budget: a limit is passed by one
    request's cost at most. What it may cost is recorded before it is sent, so that a process that
    is killed leaves no bill behind that nobody counts.
    """

    def __init__(
        self,
        hooks: Hooks,
        budget: Budget,
        spend: Callable[[], Spend],
        record: Callable[[Asked | Spent | ReplyRead | ModelStopped], None],
        store: CompletionStore,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """``spend``: what the run has used up so far, this model's part included."""
        self._hooks, self._budget, self._spend = hooks, budget, spend
        self._record, self._store = record, store
        self._warn = warn or (lambda text: _log.warning("budget", said=text))
        self._done: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._waiting: deque[CompletionRequest] = deque()
        self._flying: dict[str, CompletionRequest] = {}
        self._unsettled: dict[str, Asked] = {}
        self._given_up: set[str] = set()
        self._answers: dict[str, Answer] = {}
        self._prices: dict[str, Price | None] = {}
        self._failures, self._unusable = 0, 0
        self._warned: set[tuple[str, float]] = set()
        self.tokens, self.unpriced_tokens, self.usd = 0, 0, 0.0
        """Used up through this object."""
        self.stopped: str | None = None
        """Why it is no longer asked; None: it is."""

    def complete(self, requests: list[CompletionRequest]) -> list[Completion | CompletionFailure]:
        """Return an answer, or why there is none, for each. Raises RunPausedError."""
        self.prefetch(requests)
        wanted = {request.id for request in requests}
        while missing := wanted - set(self._answers):
            self._begin()
            if not missing & set(self._flying) and not self._flying:
                break  # nothing that is missing can be begun
            self._take(self._done.get())
        for request in requests:
            self._answers.setdefault(request.id, self._refusal(request))
        answers = [self._answers[request.id] for request in requests]
        self._forget_failures(wanted)
        _pause(answers)
        return answers

    def any_of(
        self, requests: list[CompletionRequest]
    ) -> list[Completion | CompletionFailure | None]:
        """Return the answers that are there when the first one is; None: on its way.

        Raises RunPausedError where none is, and one has still to be written by somebody.
        """
        self.prefetch(requests)
        wanted = {request.id for request in requests}
        while missing := wanted - set(self._answers):
            if any(isinstance(self._answers.get(each), Completion) for each in wanted):
                break
            self._begin()
            if not missing & set(self._flying) and not self._flying:
                break  # nothing that is missing can be begun
            self._take(self._done.get())
        self._take_what_is_there()
        if not wanted & (set(self._flying) | {request.id for request in self._waiting}):
            for request in requests:
                self._answers.setdefault(request.id, self._refusal(request))
        answers = [self._answers.get(request.id) for request in requests]
        self._forget_failures(wanted)
        here = [answer for answer in answers if answer is not None]
        if not any(isinstance(answer, Completion) for answer in here):
            _pause(here)
        return answers

    def give_up(self, requests: list[CompletionRequest]) -> None:
        """Forget what was not begun, and have the plugin end what is on its way."""
        unwanted = {request.id for request in requests}
        self._waiting = deque(each for each in self._waiting if each.id not in unwanted)
        for request in requests:
            if request.id in self._flying and request.id not in self._given_up:
                self._given_up.add(request.id)
                self._hooks.kopt_give_up(request)

    def _take_what_is_there(self) -> None:
        while True:
            try:
                outcome = self._done.get_nowait()
            except queue.Empty:
                return
            self._take(outcome)

    def prefetch(self, requests: list[CompletionRequest]) -> None:
        """Begin to ask what is neither answered nor asked already."""
        queued = {request.id for request in self._waiting}
        for request in requests:
            if request.id in self._answers or request.id in self._flying or request.id in queued:
                continue
            known = self._store.load(request)
            if known is not None:
                self._answers[request.id] = known
            else:
                self._waiting.append(request)
                queued.add(request.id)
        self._begin()

    def was(self, request: CompletionRequest, outcome: str, *, usable: bool) -> None:
        """Record what an answer turned out to be; too many unusable ones in a row end the asking."""
        self._record(ReplyRead(request=request.id, outcome=outcome, usable=usable))
        if not usable:
            self._count_unusable(outcome)
        elif request.role not in _THINKING:
            self._unusable = 0

    def _count_unusable(self, outcome: str) -> None:
        self._unusable += 1
        if self._unusable >= UNUSABLE_TO_STOP:
            self._stop(
                f"{self._unusable} answers of the language model in a row were of no use, the last: "
                f"{outcome}"
            )

    def take(self) -> None:
        """Count and keep what has come meanwhile."""
        self._take_what_is_there()
        self._begin()

    def settle(self, seconds: float = _LAST_SECONDS) -> None:
        """Count what has come, at the end; end what nobody will read, and wait for its bills.

        What does not come in time is counted at the most that it may cost.
        """
        self._waiting.clear()
        try:
            self._take_what_is_there()
            self.give_up(list(self._flying.values()))
            until = time.monotonic() + seconds
            while self._flying and (left := until - time.monotonic()) > 0:
                try:
                    self._take(self._done.get(timeout=left))
                except queue.Empty:
                    break
        finally:
            if self._flying:
                _log.warning("requests_abandoned", requests=len(self._flying))
            self.count_lost(list(self._unsettled.values()))

    def count_lost(self, asked: Sequence[Asked]) -> None:
        """Count requests whose bill never came: by the answer where there is one, else at the most."""
        for each in asked:
            self._unsettled.pop(each.request, None)
            answer = self._store.answer_to(each.request)
            usage, usd = (answer.usage, answer.usd) if answer else (each.usage, each.usd)
            self._add(usage, usd)
            self._record(Spent(
                tokens=usage.total, usd=usd, model=answer.model if answer else each.model,
                request=each.request, role=each.role, purpose=each.purpose, usage=usage,
                outcome="answered" if answer else "lost", detail="" if answer else _LOST,
            ))  # fmt: skip
        if asked:
            self._warn_of_limits()

    def _begin(self) -> None:
        """Start what waits, as far as threads and the budget go."""
        while self._waiting and len(self._flying) < AT_A_TIME:
            request = self._waiting[0]
            if self.stopped or self._limit(request):
                if not self._flying:
                    self._waiting.popleft()
                    self._answers[request.id] = self._refusal(request)
                    continue
                return  # what is in flight may cost less than feared
            self._announce(request)
            self._waiting.popleft()
            self._flying[request.id] = request
            asked = time.time()
            threading.Thread(target=self._ask, args=(request, asked), daemon=True).start()

    def _announce(self, request: CompletionRequest) -> None:
        """Record what a request may cost, unless it can be asked again at no further cost."""
        if any(p.info.role == "llm" and p.keeps_requests for p in self._hooks.plugins):
            return
        price = self._price(request)
        most = Usage(
            input_tokens=_input_tokens(request), output_tokens=request.max_tokens, estimated=True
        )
        asked = Asked(
            request=request.id, role=request.role, purpose=request.purpose, usage=most,
            model=price.model if price else "", usd=self._most_usd(request) if price else None,
        )  # fmt: skip
        self._record(asked)
        self._unsettled[request.id] = asked

    def _add(self, usage: Usage, usd: float | None) -> None:
        self.tokens += usage.total
        if usd is None:
            self.unpriced_tokens += usage.total
        else:
            self.usd += usd

    def _ask(self, request: CompletionRequest, asked: float) -> None:
        """Ask the plugin; in a thread."""
        began = time.monotonic()
        answer: Answer
        try:
            found = self._hooks.kopt_complete(request)
            answer = _readable(found) if found else CompletionFailure(
                kind="unavailable", detail="no language model plugin answers; see the events above"
            )  # fmt: skip
        except CompletionError as error:
            answer = error.failure
        except BaseException as error:  # noqa: BLE001 - a thread's end must be told, whatever it is
            answer = CompletionFailure(kind="invalid", detail=f"{type(error).__name__}: {error}")
        self._done.put(_Outcome(request, answer, time.monotonic() - began, asked))

    def _take(self, outcome: _Outcome) -> None:
        """Record what a thread brought back."""
        request, answer, seconds, asked = outcome
        self._flying.pop(request.id, None)
        self._given_up.discard(request.id)
        self._answers[request.id] = answer
        self._add(answer.usage, answer.usd)
        if isinstance(answer, Completion):
            self._store.keep(request, answer, asked)
        if not (isinstance(answer, CompletionFailure) and answer.kind == "pending"):
            self._record(_spent(request, answer, seconds))
            if isinstance(answer, CompletionFailure) and answer.kind != "stopped":
                said = {"role": request.role, "kind": answer.kind, "detail": answer.detail}
                _log.warning("request_failed", **said)
        self._unsettled.pop(request.id, None)
        self._count(answer)
        self._warn_of_limits()

    def _count(self, answer: Answer) -> None:
        if isinstance(answer, Completion):
            self._failures = 0
        elif answer.kind in _BREAKING:
            self._failures += 1
        elif answer.kind in _REFUSING:
            self._count_unusable(answer.kind)
        used = answer.usage.total > 0
        if self._budget.usd is not None and used and answer.usd is None:
            self._stop(f"the price of model {answer.model!r} is unknown, and money is limited")
        elif isinstance(answer, CompletionFailure) and answer.kind == "quota":
            self._stop(f"the language model's quota is used up: {answer.detail}")
        elif self._failures >= FAILURES_TO_STOP:
            detail = answer.detail if isinstance(answer, CompletionFailure) else ""
            self._stop(f"the language model failed {self._failures} times in a row: {detail}")

    def _stop(self, reason: str) -> None:
        if self.stopped is None:
            self.stopped = reason
            self._record(ModelStopped(reason=reason))
            self._warn(f"no longer asked: {reason}")

    def _refusal(self, request: CompletionRequest) -> CompletionFailure:
        if self.stopped:
            return CompletionFailure(kind="stopped", detail=self.stopped)
        said = self._limit(request) or "the run ended before it was asked"
        return CompletionFailure(kind="budget", detail=said)

    def _limit(self, request: CompletionRequest) -> str | None:
        """Return which limit forbids to begin a request now."""
        if self._budget.usd is not None and self._price(request) is None:
            return f"budget: money is limited, and no price is known for role {request.role!r}"
        spent, flying = self._spend(), list(self._flying.values())
        feared = Spend(
            tokens=spent.tokens + sum(most_tokens(each) for each in flying),
            usd=spent.usd + sum(self._most_usd(each) for each in flying),
        )
        return feared.exceeded(Budget(tokens=self._budget.tokens, usd=self._budget.usd))

    def _price(self, request: CompletionRequest) -> Price | None:
        if request.role not in self._prices:
            self._prices[request.role] = self._hooks.kopt_price(request.role)
        return self._prices[request.role]

    def _most_usd(self, request: CompletionRequest) -> float:
        price = self._price(request)
        if price is None:
            return 0.0
        given = _input_tokens(request) * price.input_usd
        return (given + request.max_tokens * price.output_usd) / 1e6

    def _warn_of_limits(self) -> None:
        spent = self._spend()
        limits = (("tokens", spent.tokens, self._budget.tokens, "{:,.0f} tokens"),
                  ("usd", spent.usd, self._budget.usd, "${:.2f}"))  # fmt: skip
        for name, used, limit, form in limits:
            share = next((s for s in _WARN_AT if limit and used >= s * limit), None)
            if share is None or limit is None or (name, share) in self._warned:
                continue
            self._warned |= {(name, s) for s in _WARN_AT if s <= share}
            self._warn(f"{share:.0%} of the budget: {form.format(used)} of {form.format(limit)}")

    def _forget_failures(self, ids: set[str]) -> None:
        """Ask again the next time: a failure is not an answer."""
        for each in ids:
            if isinstance(self._answers.get(each), CompletionFailure):
                del self._answers[each]


def most_tokens(request: CompletionRequest) -> int:
    """Return how many tokens a request and its answer have at most, by estimate."""
    return _input_tokens(request) + request.max_tokens


def _input_tokens(request: CompletionRequest) -> int:
    return estimated_tokens(request.characters) + _PER_MESSAGE * len(request.messages)


def _readable(completion: Completion) -> Completion:
    """Return it with text that UTF-8 has: half of a surrogate pair cannot be kept."""
    text = completion.text.encode("utf-8", "replace").decode()
    return completion if text == completion.text else completion.model_copy(update={"text": text})


def _spent(request: CompletionRequest, answer: Answer, seconds: float) -> Spent:
    failed = isinstance(answer, CompletionFailure)
    return Spent(
        tokens=answer.usage.total, usd=answer.usd, model=answer.model, request=request.id,
        role=request.role, purpose=request.purpose, usage=answer.usage, seconds=seconds,
        outcome=answer.kind if isinstance(answer, CompletionFailure) else "answered",
        detail=answer.detail if failed and isinstance(answer, CompletionFailure) else "",
    )  # fmt: skip


def _pause(answers: list[Answer]) -> None:
    """Raise RunPausedError where somebody has still to write an answer."""
    failures = [each for each in answers if isinstance(each, CompletionFailure)]
    pending = [failure.detail for failure in failures if failure.kind == "pending"]
    if pending:
        raise RunPausedError(
            f"{len(pending)} of {len(answers)} answers have still to be written: "
            f"{'; '.join(pending)}; then go on with `kopt resume`"
        )
