"""Asks until there is an answer: more tries, other models, and the bill of all of them."""

from __future__ import annotations

import asyncio
import math
import random
import sys
from typing import TYPE_CHECKING, NoReturn

from kopt.errors import CompletionError
from kopt.logs import get_logger
from kopt.model.completion import Completion, CompletionFailure, Usage
from kopt_openai import parameters
from kopt_openai.endpoint import OPENAI_URL, Endpoint
from kopt_openai.parameters import Refused
from kopt_openai.pricing import highest, rate_of
from kopt_openai.redaction import cleaned_answer
from kopt_openai.streaming import Reply, read_chat, read_responses
from kopt_openai.troubles import Trouble, understood

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from kopt.model.completion import CompletionRequest, Price
    from kopt_openai.options import Options

_LONGEST_BACKOFF = 30.0
_AFTER_END_SECONDS = 5.0
"""How long usage may come after an answer that is complete."""
_LEAST_ROOM = 0.25
"""Of what an answer may have: with less a new try would most likely pay for one that is cut off."""
_ROUNDING = 1e-6
"""Of a token."""
_log = get_logger(__name__)


class Bill:
    """What a request has cost so far."""

    def __init__(self, options: Options, host: str) -> None:
        self._options, self._host = options, host
        self.usage, self.usd = Usage(), 0.0
        self.unknown = False
        """Whether something was used at a price nobody knows."""

    def add(self, model: str, reply: Reply) -> None:
        """Count a try."""
        usage = reply.usage
        self.usage = self.usage.plus(usage)
        if usage.total:
            rate = rate_of(model, self._options, self._host)
            usd = None if rate is None else rate.usd(usage, reply.written)
            self.usd += usd or 0.0
            self.unknown = self.unknown or usd is None

    def as_output(self, price: Price | None) -> int:
        """Return how much output could have been had instead, by tokens or by money.

        :param price: the dearest that counts; None: unknown, tokens alone count.
        """
        tokens = self.usage.total
        if price is None or not self.usd:
            return tokens
        if not price.output_usd:
            return sys.maxsize
        return max(tokens, math.ceil(self.usd * 1e6 / price.output_usd - _ROUNDING))

    @property
    def total(self) -> float | None:
        """US dollars; None: unknown."""
        return None if self.unknown else self.usd


class Inquiry:
    """One request, from the first try to an answer or to the reason why there is none."""

    def __init__(
        self, request: CompletionRequest, options: Options, endpoint: Endpoint, refused: Refused
    ) -> None:
        self._request, self._options = request, options
        self._endpoint, self._refused = endpoint, refused
        self._bill = Bill(options, endpoint.host)
        self._until = 0.0
        """When all must be done, by the loop's clock."""

    async def ask(self, client: AsyncOpenAI) -> Completion:
        """Return the answer. Raises CompletionError."""
        self._until = asyncio.get_running_loop().time() + self._options.total_seconds
        models = self._options.models_for(self._request.role)
        for position, model in enumerate(models):
            name = model
            try:
                name = model or await self._served(client)
                return await self._ask(client, name)
            except Trouble as trouble:
                if not trouble.other_model or position == len(models) - 1:
                    self._fail(trouble, name)
                _log.warning(
                    "model_replaced", model=name, by=models[position + 1], why=str(trouble)
                )
        raise AssertionError("there is always a model")

    def cancelled(self) -> CompletionFailure:
        """Return the failure of a request that was given up, with what it had cost by then."""
        return CompletionFailure(
            kind="stopped", detail="the request was given up: nobody waits for its answer any more",
            usage=self._bill.usage, usd=self._bill.total,
        )  # fmt: skip

    def _fail(self, trouble: Trouble, model: str) -> NoReturn:
        failure = CompletionFailure(
            kind=trouble.kind, detail=trouble.detail, model=model, usage=self._bill.usage,
            usd=self._bill.total,
        )  # fmt: skip
        raise CompletionError(failure) from trouble

    async def _served(self, client: AsyncOpenAI) -> str:
        """Return the name of the one model that the endpoint serves. Raises Trouble."""
        where, hint = self._endpoint.shown, "name one, as -o llm.openai.model=NAME"
        if self._endpoint.url.startswith(OPENAI_URL):
            raise Trouble("unavailable", f"no model is named, and {where} has many; {hint}")
        try:
            async with asyncio.timeout(self._options.connect_seconds):
                page = await client.models.list()
        except TimeoutError:
            raise Trouble("unavailable", f"{where} does not say what it serves; {hint}") from None
        except Exception as error:
            raise self._understood(error, "", Reply(0), frozenset()) from error
        names = [str(model.id) for model in page.data or ()]
        if len(names) != 1:
            listed = ", ".join(sorted(names)[:12]) or "none"
            raise Trouble("unavailable", f"{where} serves these models: {listed}; {hint}")
        return names[0]

    async def _ask(self, client: AsyncOpenAI, model: str) -> Completion:
        """Ask one model, more than once where that may help. Raises Trouble."""
        failed = 0
        while True:
            try:
                return await self._try(client, model)
            except Trouble as trouble:
                if trouble.parameter is not None:
                    self._refused.add(model, trouble.parameter)
                    _log.warning("parameter_dropped", model=model, parameter=trouble.parameter)
                    continue
                failed += 1
                await self._wait(trouble, failed)
                _log.info("model_asked_again", model=model, tries=failed, why=str(trouble))

    def _room(self) -> int:
        """Return how long the next answer may be, in tokens.

        A run's limits set aside one input and one whole answer for a request, at the price of its
        dearest model. So the next answer has to do without what the failed tries have used.
        """
        models = self._options.models_for(self._request.role)
        dearest = highest(models, self._options, self._endpoint.host)
        return self._request.max_tokens - self._bill.as_output(dearest)

    async def _wait(self, trouble: Trouble, failed: int) -> None:
        """Sleep before the next try. Raises the trouble where there is to be none."""
        retries = self._options.retries
        most = {"never": 0, "once": min(1, retries), "often": retries}[trouble.again]
        if (most or trouble.other_model) and self._room() < _LEAST_ROOM * self._request.max_tokens:
            why = "no more tries: together they might pass what one call may cost"
            raise Trouble(trouble.kind, f"{trouble.detail} ({why})")
        seconds = min(self._options.backoff_seconds * 2 ** (failed - 1), _LONGEST_BACKOFF)
        seconds *= random.uniform(0.5, 1.0)
        if trouble.wait is not None:
            seconds = max(trouble.wait, seconds if trouble.wait == 0 else 0.0)
            if trouble.wait > self._options.longest_wait_seconds:
                asked = f"it asks to wait {trouble.wait:.0f} s, more than longest_wait_seconds"
                raise _with(trouble, asked)
        left = self._until - asyncio.get_running_loop().time()
        if failed > most or seconds >= left:
            raise _with(trouble, f"tried {failed} times") if failed > 1 else trouble
        await asyncio.sleep(seconds)

    async def _try(self, client: AsyncOpenAI, model: str) -> Completion:
        """Ask once, and count it. Raises Trouble."""
        refused = self._refused.of(model)
        request = self._request.model_copy(update={"max_tokens": self._room()})
        if self._options.api == "chat":
            hosted = self._endpoint.url.startswith(OPENAI_URL)
            asked = parameters.chat(model, request, self._options, refused, hosted=hosted)
        else:
            asked = parameters.responses(model, request, self._options, refused)
        reply = Reply(self._request.characters)
        optional = parameters.droppable(asked, refused) | set(self._options.body) - refused
        try:
            await self._read(client, asked, reply)
        except Trouble:
            if reply.finish is None:
                raise
        except Exception as error:
            if reply.finish is None:  # what goes wrong after the end costs no answer
                raise self._understood(error, model, reply, optional) from error
        finally:
            self._bill.add(model, reply)
        return self._completion(model, reply)

    async def _read(self, client: AsyncOpenAI, asked: dict[str, object], reply: Reply) -> None:
        """Read an answer within its times. Raises Trouble, or what the client raises."""
        read = read_chat if self._options.api == "chat" else read_responses
        now = asyncio.get_running_loop().time
        first = min(now() + self._options.first_token_seconds, self._until)

        def alive() -> None:
            pause = self._options.chunk_seconds
            pause = pause if reply.finish is None else min(pause, _AFTER_END_SECONDS)
            limit.reschedule(min(now() + pause, self._until))

        try:
            async with asyncio.timeout_at(first) as limit:
                await read(client, asked, reply, alive)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._late(reply, total=now() >= self._until) from error

    def _late(self, reply: Reply, *, total: bool) -> Trouble:
        options, where = self._options, self._endpoint.shown
        if total:
            said, option = f"was not ready in {options.total_seconds:g} s", "total_seconds"
        elif reply.pieces:
            said, option = f"paused for {options.chunk_seconds:g} s", "chunk_seconds"
        else:
            said = f"sent no token in {options.first_token_seconds:g} s"
            option = "first_token_seconds"
        hint = f"raise the option {option} where the model needs longer"
        return Trouble("timeout", f"{where} {said}; {hint}", again="once", other_model=not total)

    def _completion(self, model: str, reply: Reply) -> Completion:
        """Return the answer that a reply is. Raises Trouble where it is none."""
        where = self._endpoint.shown
        if reply.finish is None and not reply.pieces:
            raise Trouble("invalid", f"{where} sent an answer with nothing in it", again="once")
        if reply.finish is None:
            said = f"{where} broke off its answer after {reply.pieces} pieces"
            raise Trouble("unavailable", said, again="often", other_model=True)
        if reply.finish == "filter":
            raise Trouble("filtered", f"{where} withheld the answer of {model}: content filter")
        if reply.usage.estimated:
            _log.warning("usage_estimated", model=model, endpoint=where)
        return Completion(
            text=cleaned_answer("".join(reply.text)), model=model, usage=self._bill.usage,
            usd=self._bill.total, finish=reply.finish,
        )  # fmt: skip

    def _understood(
        self, error: Exception, model: str, reply: Reply, optional: frozenset[str]
    ) -> Trouble:
        return understood(error, self._endpoint, model, accepted=reply.accepted, optional=optional)


def _with(trouble: Trouble, more: str) -> Trouble:
    """Return the same trouble, with more to say and nothing to try."""
    return Trouble(trouble.kind, f"{trouble.detail} ({more})", other_model=trouble.other_model)
