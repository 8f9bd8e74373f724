"""What ``kopt show`` says a run asked of its language model, and what it paid."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kopt.cli.accounts_table import Accounts, accounts_of
from kopt.model.budget import Spend
from kopt.model.completion import Usage
from kopt.runs.events import Finished, ModelStopped, ReplyRead, Spent

Run = Callable[..., Any]
USAGE = Usage(input_tokens=1000, output_tokens=200, cached_tokens=400, reasoning_tokens=50)


def spent(request: str, **more: Any) -> Spent:
    known = {
        "tokens": USAGE.total, "usage": USAGE, "usd": 0.25, "model": "large", "role": "code",
        "purpose": "wider [loads]", "seconds": 2.0, "outcome": "answered",
    }  # fmt: skip
    return Spent(request=request, **{**known, **more})


def failed(request: str, kind: str, **more: Any) -> Spent:
    return spent(request, outcome=kind, usage=Usage(), tokens=0, usd=0.0, **more)


def read(request: str, outcome: str, usable: bool = False) -> ReplyRead:
    return ReplyRead(request=request, outcome=outcome, usable=usable)


def accounts(*events: Any) -> Accounts:
    found = accounts_of(events)
    assert found is not None
    return found


def test_a_run_without_a_model_has_no_accounts() -> None:
    assert accounts_of([Finished(status="improved")]) is None


def test_each_role_and_purpose_has_its_own_row() -> None:
    found = accounts(
        spent("a"), spent("b", purpose="fewer warps"), spent("c", role="repair"),
        spent("d", usd=0.5), read("a", "candidate", True), read("d", "truncated"),
    )  # fmt: skip
    rows = {(row.role, row.purpose): row for row in found.rows}
    assert list(rows) == [
        ("code", "wider [loads]"), ("code", "fewer warps"), ("repair", "wider [loads]"),
    ]  # fmt: skip
    first = rows["code", "wider [loads]"]
    assert (first.calls, first.usd, first.usage.total) == (2, 0.75, 2400)
    assert (dict(first.replies), dict(first.unusable)) == (
        {"candidate": 1, "truncated": 1}, {"truncated": 1},
    )  # fmt: skip
    assert (found.total.calls, found.total.usd, found.total.seconds) == (4, 1.25, 8.0)
    assert found.total.usage.reasoning_tokens == 200


def test_failed_calls_count_and_what_they_used() -> None:
    found = accounts(
        failed("a", "timeout"), failed("a", "rate-limited"), spent("a"),
        spent("b", outcome="filtered", usd=0.01),
    )  # fmt: skip
    total = found.total
    assert total.calls == 4
    assert dict(total.failures) == {"timeout": 1, "rate-limited": 1, "filtered": 1}
    assert total.usd == pytest.approx(0.26)


def test_an_unknown_price_is_no_zero() -> None:
    unknown = accounts(spent("a", usd=None)).total
    assert (unknown.usd, unknown.known_usd, unknown.unpriced) == (None, 0.0, 1)
    partly = accounts(spent("a", usd=None), spent("b")).total
    assert (partly.usd, partly.known_usd) == (None, 0.25)
    assert accounts(spent("a", usd=0.0)).total.usd == 0.0


def test_a_reply_that_is_read_again_counts_once() -> None:
    found = accounts(spent("a"), read("a", "refusal"), read("a", "refusal"), read("b", "lost"))
    assert dict(found.total.replies) == {"refusal": 1}


def lines_of(out: str) -> dict[str, list[str]]:
    """Return the table's rows by role; the table ends at an empty line."""
    table = out[out.index("ASKED FOR") :].split("\n\n")[0].splitlines()
    return {line.split("  ")[0]: line.split() for line in table[1:]}


def test_show_has_the_table_and_the_object(kopt: Run, recorded: Run) -> None:
    folder = recorded(None)
    with folder.writing() as journal:
        for event in (
            spent("a"), spent("b", usd=None, model="other"), failed("c", "timeout", role="repair", detail="no [byte] came"),
            read("a", "truncated"), ModelStopped(reason="the [quota] is used up"),
        ):  # fmt: skip
            journal.append(event, Spend(seconds=3, trials=2))
    said = kopt("show", "last")
    assert said.code == 0
    rows = lines_of(said.out)
    assert rows["code"] == [
        "code", "2", "1", "(1", "truncated)", "2,000", "400", "0.2500", "+", "unknown", "wider",
        "[loads]",
    ]  # fmt: skip
    assert rows["repair"][:4] == ["repair", "1", "1", "(1"]
    assert "0.2500 + unknown" in " ".join(rows["all"])
    assert said.out[said.out.index("asked: ") :].splitlines()[:3] == [
        "asked: large, other", "last failure: timeout: no [byte] came",
        "no longer asked: the [quota] is used up",
    ]  # fmt: skip
    found = json.loads(kopt("show", "last", "--json").out)["accounts"]
    assert found["models"] == ["large", "other"]
    assert found["last_failure"] == "timeout: no [byte] came"
    assert found["total"] == {
        "role": "all", "purpose": "", "calls": 3, "failed": 1, "failures": {"timeout": 1},
        "unusable": 1, "replies": {"truncated": 1}, "tokens": 2400, "usd": None,
        "known_usd": 0.25, "unpriced_calls": 1, "seconds": 6.0,
        "usage": {
            "input_tokens": 2000, "output_tokens": 400, "cached_tokens": 800,
            "reasoning_tokens": 100, "estimated": False,
        },
    }  # fmt: skip
    assert [row["role"] for row in found["rows"]] == ["code", "repair"]


def test_estimated_tokens_are_marked(kopt: Run, recorded: Run) -> None:
    folder = recorded(None)
    with folder.writing() as journal:
        guessed = USAGE.model_copy(update={"estimated": True})
        journal.append(spent("a", usage=guessed), Spend(seconds=3, trials=2))
    assert lines_of(kopt("show", "last").out)["code"][2:4] == ["~1,000", "~200"]


def test_only_unknown_money_shows_as_unknown(kopt: Run, recorded: Run) -> None:
    folder = recorded(None)
    with folder.writing() as journal:
        journal.append(spent("a", usd=None), Spend(seconds=3, trials=2))
    row = lines_of(kopt("show", "last").out)["code"]
    assert row[4] == "unknown"
    assert "0.0" not in " ".join(row)


def test_a_run_that_asked_nothing_shows_no_table(kopt: Run, recorded: Run) -> None:
    recorded("improved")
    assert "ASKED FOR" not in kopt("show", "last").out
    assert json.loads(kopt("show", "last", "--json").out)["accounts"] is None
