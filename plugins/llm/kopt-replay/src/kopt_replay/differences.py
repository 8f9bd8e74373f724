"""Which recording a request comes closest to, and where the two part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt.model.completion import CompletionRequest, Message

_LONGEST = 160
"""Characters of a line that are shown."""


def nearest(request: CompletionRequest, recorded: Sequence[CompletionRequest]) -> CompletionRequest:
    """Return the one of at least one that shares most lines, of the same role where they tie."""
    wanted = _lines(request)

    def likeness(each: CompletionRequest) -> tuple[float, bool]:
        has = _lines(each)
        shared, longest = (wanted & has).total(), max(wanted.total(), has.total(), 1)
        return shared / longest, each.role == request.role

    return max(recorded, key=likeness)


def _lines(request: CompletionRequest) -> Counter[str]:
    return Counter(
        line for message in request.messages for line in message.content.splitlines()
    )  # fmt: skip


def difference(asked: CompletionRequest, recorded: CompletionRequest) -> str:
    """Return in words where a request first differs from a recorded one."""
    pairs = zip_longest(asked.messages, recorded.messages)
    for number, (now, then) in enumerate(pairs, 1):
        if now is None or then is None:
            return f"{len(recorded.messages)} messages recorded, {len(asked.messages)} asked"
        if now != then:
            return f"message {number} {_in_message(now, then)}"
    fields = [
        f"{name} {getattr(recorded, name)} recorded, {getattr(asked, name)} asked"
        for name in ("role", "sample", "max_tokens", "temperature")
        if getattr(recorded, name) != getattr(asked, name)
    ]
    return f"the same messages; {', '.join(fields)}" if fields else "nothing"


def _in_message(now: Message, then: Message) -> str:
    if now.role != then.role:
        return f"is of {then.role} as recorded, of {now.role} as asked"
    lines = zip_longest(now.content.splitlines(), then.content.splitlines())
    for number, (asked, recorded) in enumerate(lines, 1):
        if asked != recorded:
            return (
                f"({now.role}), line {number}: {_quoted(recorded)} recorded, {_quoted(asked)} asked"
            )
    return f"({now.role}) differs in its line ends only"


def _quoted(line: str | None) -> str:
    """Return a line as Python would write it, cut where it is long."""
    if line is None:
        return "no such line"
    return repr(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")
