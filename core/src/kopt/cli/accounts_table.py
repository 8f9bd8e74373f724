"""What a run asked of its language model: tokens and money for each role and purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kopt.model.completion import Usage
from kopt.runs.events import Asked, ModelStopped, ReplyRead, Spent, unsettled

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.runs.events import Event

_ANSWERED = "answered"
_LOST = "lost"


@dataclass
class Account:
    """The calls of one role and purpose."""

    role: str
    purpose: str
    calls: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Calls without an answer, by the kind of failure."""
    replies: Counter[str] = field(default_factory=Counter)
    """What the answers turned out to be."""
    unusable: Counter[str] = field(default_factory=Counter)
    """Those of them that were of no use."""
    usage: Usage = field(default_factory=Usage)
    known_usd: float = 0.0
    """Of the calls whose price is known."""
    unpriced: int = 0
    """Calls at an unknown price."""
    seconds: float = 0.0
    """All calls added, however many were in flight at a time."""

    @property
    def usd(self) -> float | None:
        """None where a part of it is unknown."""
        return None if self.unpriced else self.known_usd

    def add(self, spent: Spent) -> None:
        """Count a call."""
        self.calls += 1
        self.usage = self.usage.plus(spent.usage)
        self.seconds += spent.seconds
        if spent.outcome != _ANSWERED:
            self.failures[spent.outcome] += 1
        if spent.usd is None:
            self.unpriced += 1
        else:
            self.known_usd += spent.usd

    def read(self, reply: ReplyRead) -> None:
        """Count what an answer turned out to be."""
        self.replies[reply.outcome] += 1
        if not reply.usable:
            self.unusable[reply.outcome] += 1


@dataclass(frozen=True)
class Accounts:
    """A run's accounts, in the order in which roles and purposes were first asked for."""

    rows: tuple[Account, ...]
    models: tuple[str, ...]
    stopped: str
    """Why the model was no longer asked, the last time that happened."""
    failed: str
    """What the last call without an answer said; empty where there was none."""
    unsettled: tuple[Asked, ...] = ()
    """Calls without a bill: in flight now, or when their process was killed. No row counts them."""

    @property
    def total(self) -> Account:
        """Every call."""
        total = Account("all", "")
        for row in self.rows:
            total.calls += row.calls
            total.failures += row.failures
            total.replies += row.replies
            total.unusable += row.unusable
            total.usage = total.usage.plus(row.usage)
            total.known_usd += row.known_usd
            total.unpriced += row.unpriced
            total.seconds += row.seconds
        return total


def accounts_of(events: Iterable[Event]) -> Accounts | None:
    """Return what a journal's events say was asked; None where nothing was.

    A reply that was read more than once, as by a resumed run, counts as it was read last.
    """
    events = list(events)
    rows: dict[tuple[str, str], Account] = {}
    asked: dict[str, Account] = {}
    read: dict[str, ReplyRead] = {}
    models: dict[str, None] = {}
    stopped = failed = ""
    for event in events:
        if isinstance(event, Spent):
            row = rows.setdefault((event.role, event.purpose), Account(event.role, event.purpose))
            row.add(event)
            asked[event.request] = row
            models.update({event.model: None} if event.model else {})
            failed = failed if event.outcome == _ANSWERED else f"{event.outcome}: {event.detail}"
        elif isinstance(event, ReplyRead):
            read[event.request] = event
        elif isinstance(event, ModelStopped):
            stopped = event.reason
    for request, reply in read.items():
        if request in asked:
            asked[request].read(reply)
    open_ = unsettled(events)
    if not rows and not open_:
        return None
    return Accounts(tuple(rows.values()), tuple(models), stopped, failed, open_)


def accounts_json(accounts: Accounts | None) -> dict[str, Any] | None:
    """Return what ``kopt show RUN --json`` has as ``accounts``."""
    if accounts is None:
        return None
    return {
        "models": list(accounts.models), "stopped": accounts.stopped,
        "last_failure": accounts.failed,
        "rows": [_row_json(row) for row in accounts.rows], "total": _row_json(accounts.total),
        "unsettled": [each.to_json() for each in accounts.unsettled],
    }  # fmt: skip


def _row_json(row: Account) -> dict[str, Any]:
    return {
        "role": row.role, "purpose": row.purpose, "calls": row.calls,
        "failed": row.failures.total(), "failures": dict(row.failures),
        "unusable": row.unusable.total(), "replies": dict(row.replies),
        "tokens": row.usage.total, "usage": row.usage.to_json(), "usd": row.usd,
        "known_usd": row.known_usd, "unpriced_calls": row.unpriced, "seconds": row.seconds,
    }  # fmt: skip


def print_accounts(accounts: Accounts) -> None:
    """Print the table, which models were asked, and what went wrong."""
    from rich.markup import escape

    from kopt.cli.output import put

    if accounts.rows:
        put(_table(accounts))
    if accounts.models:
        put(escape(f"asked: {', '.join(accounts.models)}"))
    if accounts.failed:
        put(escape(f"last failure: {accounts.failed}"))
    if accounts.stopped:
        put(escape(f"no longer asked: {accounts.stopped}"))
    for line in _without_bill(accounts):
        put(escape(line))
    put("")


def _without_bill(accounts: Accounts) -> list[str]:
    """Return what is to be said of calls whose bill never came, or has not come yet."""
    lines = []
    if lost := accounts.total.failures[_LOST]:
        are = "call was" if lost == 1 else "calls were"
        lines.append(
            f"{lost} {are} in flight as kopt's process ended, and counted at the most possible"
        )
    if left := accounts.unsettled:
        tokens = sum(each.usage.total for each in left)
        known = [each.usd for each in left if each.usd is not None]
        usd = f" and ${sum(known):.4f}" if len(known) == len(left) else ", at an unknown price"
        lines.append(
            f"{len(left)} without a bill yet, of at most {tokens:,} tokens{usd}: in flight, or "
            "left by a process that was killed; then kopt resume counts them so"
        )
    return lines


def _table(accounts: Accounts) -> Table:
    """Return a row for each role and purpose, and one for all."""
    from rich.markup import escape

    from kopt.cli.output import plain_table

    table = plain_table(
        "ASKED FOR", "CALLS>", "FAILED", "UNUSABLE", "TOKENS IN>", "OUT>", "USD>", "ON BEHALF OF"
    )
    for row in accounts.rows:
        table.add_row(*map(escape, _cells(row)))
    if len(accounts.rows) > 1:
        table.add_row(*_cells(accounts.total), style="bold")
    return table


def _cells(row: Account) -> Sequence[str]:
    about = "~" if row.usage.estimated else ""
    return (
        row.role, str(row.calls), _counts(row.failures), _counts(row.unusable),
        f"{about}{row.usage.input_tokens:,}", f"{about}{row.usage.output_tokens:,}", _usd(row),
        row.purpose,
    )  # fmt: skip


def _counts(counts: Counter[str]) -> str:
    """Return as ``3 (2 timeout, 1 quota)``; empty where there is nothing to count."""
    parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{counts.total()} ({parts})" if counts else ""


def _usd(row: Account) -> str:
    if not row.unpriced:
        return f"{row.known_usd:.4f}"
    return f"{row.known_usd:.4f} + unknown" if row.known_usd else "unknown"
