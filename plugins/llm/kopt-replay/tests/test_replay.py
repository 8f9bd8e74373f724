"""Which recording answers a request, and what is said where none does."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.errors import CompletionError, PluginOptionsError, PluginUnavailableError
from kopt.hooks import Hooks
from kopt.loading import refuse_unmetered
from kopt.model.budget import Budget
from kopt.model.completion import (
    Completion,
    CompletionFailure,
    CompletionRequest,
    Message,
    Usage,
)
from kopt.model.run import Run, RunConfig
from kopt.runs.completions import CompletionStore
from kopt.testing.problems import vector_add
from kopt_replay import Replay

USAGE = Usage(input_tokens=1000, output_tokens=200, cached_tokens=10)
LONG = "\n".join(f"fact {number}" for number in range(200))


def asked(text: str, role: str = "code", sample: int = 0, tokens: int = 100) -> CompletionRequest:
    return CompletionRequest(
        messages=(
            Message(role="system", content="You write kernels."),
            Message(role="user", content=text),
        ),
        role=role, sample=sample, max_tokens=tokens,
    )  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """Record answers, named as given, in that order; return their folder."""

    def keep(*exchanges: tuple[CompletionRequest, str]) -> Path:
        store = CompletionStore(tmp_path / "recorded")
        for number, (request, text) in enumerate(exchanges, 1):
            completion = Completion(text=text, model="large", usage=USAGE, usd=0.25, finish="stop")
            store.keep(request, completion, asked=1e9 + number)
        return tmp_path / "recorded"

    return keep


def a_replay(folder: Path, match: str = "prompt") -> Replay:
    return Replay(Replay.Options.model_validate({"folder": folder, "match": match}))


def failure_of(replay: Replay, request: CompletionRequest) -> CompletionFailure:
    with pytest.raises(CompletionError) as raised:
        replay.kopt_complete(request)
    return raised.value.failure


def test_what_was_recorded_comes_back_at_no_cost(record: Callable[..., Path]) -> None:
    replay = a_replay(record((asked("a"), "one"), (asked("b"), "two")))
    answer = replay.kopt_complete(asked("b"))
    assert (answer.text, answer.usage, answer.usd) == ("two", USAGE, 0.0)
    assert (answer.model, answer.finish) == ("replay of large", "stop")


def test_a_replay_of_a_replay_names_the_model_once(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    replayed = a_replay(record((asked("a"), "one"))).kopt_complete(asked("a"))
    CompletionStore(tmp_path / "again").keep(asked("a"), replayed)
    assert a_replay(tmp_path / "again").kopt_complete(asked("a")).model == "replay of large"


def test_a_limit_on_money_is_no_obstacle(record: Callable[..., Path]) -> None:
    folder = record((asked("a"), "one"))
    refuse_unmetered(Hooks.load([("llm", "replay", {"folder": str(folder)})]), Budget(usd=1))


def test_the_same_messages_asked_otherwise(record: Callable[..., Path]) -> None:
    folder = record(
        (asked("a", sample=1), "second"), (asked("a"), "first"),
        (asked("a", "repair"), "as a repair"), (asked("b"), "other"),
    )  # fmt: skip
    replay = a_replay(folder)
    assert replay.kopt_complete(asked("a", tokens=7)).text == "first"
    assert replay.kopt_complete(asked("a", sample=1, tokens=7)).text == "second"
    assert replay.kopt_complete(asked("a", "repair", tokens=7)).text == "as a repair"
    assert replay.kopt_complete(asked("a", "judge", sample=1)).text == "second"
    texts = [replay.kopt_complete(asked("a", sample=number)).text for number in range(2, 6)]
    assert texts == ["second", "first", "second", "first"]  # they take turns


def test_exact_is_exact(record: Callable[..., Path]) -> None:
    replay = a_replay(record((asked("a"), "one")), "exact")
    assert replay.kopt_complete(asked("a")).text == "one"
    failure = failure_of(replay, asked("a", tokens=7, sample=2))
    assert failure.kind == "invalid"
    assert "the same messages; sample 0 recorded, 2 asked, max_tokens 100 recorded, 7 asked" in (
        failure.detail
    )
    assert "-o llm.replay.match=prompt" in failure.detail
    assert "-o llm.replay.match=order" in failure_of(replay, asked("b")).detail


def test_a_mismatch_names_the_request_the_nearest_and_the_line(
    record: Callable[..., Path],
) -> None:
    near = f"{LONG}\nuse 4 warps\n{LONG}"
    folder = record((asked("something else"), "x"), (asked(near), "y"), (asked(LONG), "z"))
    request = asked(near.replace("4 warps", "8 warps"))
    detail = failure_of(a_replay(folder), request).detail
    assert request.id in detail
    assert f"nearest is {asked(near).id} (role 'code')" in detail
    assert "message 2 (user), line 201: 'use 4 warps' recorded, 'use 8 warps' asked" in detail
    assert str(folder) in detail
    assert "-o llm.replay.match=order" in detail


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("one\ntwo", "message 2 (user), line 2: 'two' recorded, no such line asked"),
        ("", "message 2 (user), line 1: no such line recorded, 'one' asked"),
        ("one\r\n", "message 2 (user) differs in its line ends only"),
        ("x" * 500, f"line 1: '{'x' * 160}...' recorded, 'one' asked"),
    ],
)
def test_differences(record: Callable[..., Path], recorded: str, said: str) -> None:
    assert said in failure_of(a_replay(record((asked(recorded), "x"))), asked("one")).detail


def test_conversations_of_another_length(record: Callable[..., Path]) -> None:
    shorter = asked("one").model_copy(update={"messages": asked("one").messages[:1]})
    replay = a_replay(record((asked("one"), "x")))
    assert "2 messages recorded, 1 asked" in failure_of(replay, shorter).detail
    other = Message(role="assistant", content="one")
    turned = asked("one").model_copy(update={"messages": (asked("one").messages[0], other)})
    assert "message 2 is of user as recorded, of assistant as asked" in (
        failure_of(replay, turned).detail
    )


def test_in_order_each_role_has_its_own(record: Callable[..., Path], tmp_path: Path) -> None:
    exchanges = [(asked(f"was {n}", "code" if n % 3 else "repair"), f"{n}") for n in range(9)]
    folder = record(*exchanges)
    copies = [json.loads(path.read_text()) for path in folder.iterdir()]
    random.Random(1).shuffle(copies)
    other = tmp_path / "copied"  # as after a checkout: other names, the order of writing is lost
    other.mkdir()
    for number, copied in enumerate(copies):
        (other / f"{number}.json").write_text(json.dumps(copied))
    for place in (folder, other):
        replay = a_replay(place, "order")
        found = [replay.kopt_complete(asked(f"now {n}")).text for n in range(6)]
        assert found == ["1", "2", "4", "5", "7", "8"]
        assert replay.kopt_complete(asked("now", "repair")).text == "0"
        detail = failure_of(replay, asked("now 6")).detail
        assert "it is number 7 of its role, which has 6 recordings" in detail
        assert "llm.replay.match" not in detail


def test_in_order_what_fits_better_still_counts(record: Callable[..., Path]) -> None:
    replay = a_replay(record((asked("a"), "1"), (asked("b"), "2"), (asked("c"), "3")), "order")
    found = [replay.kopt_complete(asked(text)).text for text in ("a", "new", "a", "c")]
    assert found[:2] == ["1", "2"]
    assert found[2:] == ["1", "3"]


def test_a_resumed_run_goes_on_in_order(record: Callable[..., Path], tmp_path: Path) -> None:
    folder = record(*[(asked(f"was {n}"), f"{n}") for n in range(4)])
    run = Run(
        id="r", folder=tmp_path / "run", status="running", problem=vector_add(),
        config=RunConfig(
            backend="cpp", strategies=(), search="greedy", verifiers=(), device="cpu"
        ),
    )  # fmt: skip
    run.folder.mkdir()
    first = a_replay(folder, "order")
    first.kopt_run_started(run)
    store = CompletionStore(run.folder / "completions")
    for n in range(2):
        store.keep(asked(f"now {n}"), first.kopt_complete(asked(f"now {n}")))
    resumed = a_replay(folder, "order")
    resumed.kopt_run_started(run)
    assert resumed.kopt_complete(asked("now 2")).text == "2"


def checked(folder: Path) -> str:
    """Return what is said of a folder before a run, where it is refused."""
    with pytest.raises(PluginUnavailableError) as raised:
        Hooks.load([("llm", "replay", {"folder": str(folder)})]).ensure_available()
    return str(raised.value)


def test_what_cannot_be_replayed_is_told_before_a_run(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(PluginOptionsError, match="folder: Field required"):
        Hooks.load([("llm", "replay", {})])
    assert f"{tmp_path / 'none'} is not there" in checked(tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is no folder" in checked(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "holds no exchanges" in checked(tmp_path / "empty")
    assert "llm.replay.folder" in checked(tmp_path / "empty")
    (tmp_path / "empty" / "run.json").write_text("{}")
    assert "asked no language model anything" in checked(tmp_path / "empty")
    folder = record((asked("a"), "one"))
    torn = next(folder.iterdir())
    os.truncate(torn, 40)
    assert str(torn) in checked(folder)
    assert failure_of(a_replay(folder), asked("a")).kind == "invalid"


def test_a_runs_folder_stands_for_its_completions(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    folder = record((asked("a"), "one"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    shutil.move(folder, tmp_path / "run" / "completions")
    replay = a_replay(tmp_path / "run")
    assert replay.kopt_complete(asked("a")).text == "one"
    assert [row.detail for row in replay.kopt_check()] == [f"1 in {tmp_path / 'run'}"]
