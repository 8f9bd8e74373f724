"""Asks for code: all at once, reads the answers, and follows up once what cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import KernelFileError
from kopt.logs import get_logger
from kopt.metering import estimated_tokens
from kopt.model.completion import Completion, CompletionFailure, CompletionRequest, Message
from kopt.model.fingerprint import fingerprint
from kopt.model.kernel_file import parse_kernel
from kopt_rewrite.ideas import one_line
from kopt_rewrite.lineage import STRATEGY, plain
from kopt_rewrite.outcomes import shortened
from kopt_rewrite.rendering import sections_of
from kopt_rewrite.replies import Outcome, Policy, Reading, Wanted, read_reply
from kopt_rewrite.situation import language_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kopt.model.candidate import Candidate
    from kopt_rewrite.rendering import Prompt
    from kopt_rewrite.round import Asker

_QUOTED = 6_000
"""Characters of an unusable answer that its follow-up shows."""
_LEAST_QUOTED = 200
"""With fewer of a longer answer a follow-up says too little to be worth its price."""
_log = get_logger(__name__)


class Order(NamedTuple):
    """Code that is asked for, and whose it is."""

    prompt: Prompt
    wanted: Wanted
    role: str
    idea: str
    """The idea's text with its mark."""
    parents: tuple[str, ...] = ()
    sample: int = 0
    temperature: float | None = None
    watched: tuple[str, ...] = ()
    """Metrics that the idea predicts and only a profiler sees."""

    def request(self, tokens: int) -> CompletionRequest:
        """Return the request; its purpose is the idea, to which it is credited."""
        return CompletionRequest(
            messages=self.prompt.messages, role=self.role, purpose=plain(self.idea),
            max_tokens=tokens, sample=self.sample, temperature=self.temperature,
        )  # fmt: skip


def candidates_of(asker: Asker, orders: Sequence[Order]) -> list[Candidate]:
    """Return the kernels that a model writes to some orders, each kernel once.

    Raises RunPausedError where an answer has still to be written.
    """
    if not orders:
        return []
    tokens = asker.round.options.code_tokens
    requests = [order.request(tokens) for order in orders]
    readings = _readings(asker, orders, requests)
    again = [
        (order, following)
        for order, request, found in zip(orders, requests, readings, strict=True)
        if found and (following := _follow_up(asker, request, found))
    ]
    second = _readings(asker, [order for order, _ in again], [request for _, request in again])
    pairs = [*zip(orders, readings, strict=True),
             *zip([order for order, _ in again], second, strict=True)]  # fmt: skip
    return _distinct(
        _candidate(order, found[0])
        for order, found in pairs
        if found is not None and found[0].usable
    )


def first_candidates_of(asker: Asker, orders: Sequence[Order]) -> list[Candidate]:
    """Return the kernels that are there as soon as one is; the other orders stay asked for.

    What cannot be used is followed up once, as ever. Raises RunPausedError where no kernel is there
    and an answer has still to be written.
    """
    tokens = asker.round.options.code_tokens
    asked = [(order, order.request(tokens), False) for order in orders]
    found: list[Candidate | None] = []
    while asked and not any(found):
        answers = asker.llm.any_of([request for _, request, _ in asked])
        left: list[tuple[Order, CompletionRequest, bool]] = []
        for (order, request, again), answer in zip(asked, answers, strict=True):
            if answer is None:
                left.append((order, request, again))
                continue
            read = _read(asker, order, request, answer)
            if read is not None and read[0].usable:
                found.append(_candidate(order, read[0]))
            elif read and not again and (following := _follow_up(asker, request, read)):
                left.append((order, following, True))
        asked = left
    asker.open[:] = [request for _, request, _ in asked]
    return _distinct(found)


def give_up(asker: Asker) -> None:
    """Have nobody write what was asked for and is no longer wanted."""
    if asker.open:
        asker.llm.give_up(list(asker.open))
        asker.open.clear()


def prefetch(asker: Asker, orders: Sequence[Order]) -> None:
    """Begin to ask for code that may be wanted in the next round."""
    tokens = asker.round.options.code_tokens
    if orders:
        asker.llm.prefetch([order.request(tokens) for order in orders])


def tell(asker: Asker, request: CompletionRequest, outcome: str, *, usable: bool) -> None:
    """Say once what an answer turned out to be."""
    if request.id not in asker.told:
        asker.told.add(request.id)
        asker.llm.was(request, outcome, usable=usable)


def _readings(
    asker: Asker, orders: Sequence[Order], requests: list[CompletionRequest]
) -> list[tuple[Reading, str] | None]:
    """Return each answer's reading with its text; None where there is no answer."""
    found: list[tuple[Reading, str] | None] = []
    answers = asker.llm.complete(requests) if requests else []
    for order, request, answer in zip(orders, requests, answers, strict=True):
        found.append(_read(asker, order, request, answer))
    return found


def _read(
    asker: Asker, order: Order, request: CompletionRequest, answer: Completion | CompletionFailure
) -> tuple[Reading, str] | None:
    if not isinstance(answer, Completion):
        _log.info("no_answer", role=request.role, kind=answer.kind, detail=answer.detail)
        return None
    reading = read_reply(answer.text, order.wanted, finish=answer.finish)
    tell(asker, request, str(reading.outcome), usable=reading.usable)
    return reading, answer.text


def _follow_up(
    asker: Asker, request: CompletionRequest, found: tuple[Reading, str]
) -> CompletionRequest | None:
    """Return a request that says what was wrong with an answer, within the prompt's budget.

    None where nothing is to be asked, or where there is no room for it.
    """
    reading, text = found
    if reading.policy not in {Policy.RETRY, Policy.REPAIR}:
        return None
    facts = {
        "outcome": str(reading.outcome), "language": language_name(asker.round.target.language),
        "detail": one_line(reading.detail, 1_000).rstrip(".") or "there is no kernel file in it",
    }  # fmt: skip
    asked = "\n\n".join(section.text for section in sections_of("retry", facts))
    shown = reading.source if reading.policy is Policy.REPAIR else text
    if reading.outcome is Outcome.EMPTY or not shown.strip():
        shown = "(nothing)"
    used = estimated_tokens(request.characters + len(asked))
    room = 3 * (asker.round.options.prompt_tokens - used)  # a token has 3 characters at least
    if room < min(len(shown), _LEAST_QUOTED):
        _log.info("no_room_to_follow_up", role=request.role, outcome=str(reading.outcome))
        return None
    quoted = Message(role="assistant", content=shortened(shown, min(_QUOTED, room)))
    return request.model_copy(
        update={"messages": (*request.messages, quoted, Message(role="user", content=asked)),
                "role": "repair" if reading.policy is Policy.REPAIR else request.role}
    )  # fmt: skip


def _candidate(order: Order, reading: Reading) -> Candidate | None:
    try:
        kernel = parse_kernel(
            reading.source, order.wanted.language, parents=order.parents, strategy=STRATEGY,
            idea=order.idea,
        )  # fmt: skip
        return kernel.model_copy(update={"watched": order.watched})
    except KernelFileError as error:  # read_reply has seen to it; a file is never worth a crash
        _log.warning("kernel_refused", detail=str(error))
        return None


def _distinct(found: Iterable[Candidate | None]) -> list[Candidate]:
    """Return candidates without doubles, the first of each."""
    kept: dict[str, Candidate] = {}
    for candidate in found:
        if candidate is not None:
            kept.setdefault(fingerprint(candidate), candidate)
    return list(kept.values())
