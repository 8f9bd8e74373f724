from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopt.errors import RunStoreError
from kopt.evaluator import Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate, Knob
from kopt.model.evaluation import Evaluation
from kopt.model.verification import StageResult, Status, Verification
from kopt.runs.events import (
    Confirmed,
    Entry,
    Evaluated,
    Event,
    Finished,
    Opened,
    PluginFailed,
    Proposed,
    Spent,
)  # fmt: skip
from kopt.runs.journal import Journal, read_journal
from kopt.runs.store import RunFolder

Make = Callable[..., Evaluation]
Draw = Callable[[int], Candidate]


@pytest.fixture
def events(opening: Opening, evaluation: Make, candidate: Draw) -> list[Event]:
    return [
        Opened(opening=opening),
        Proposed(round_number=0, candidates=(candidate(1), candidate(2))),
        Evaluated(evaluation=evaluation(1)),
        Spent(tokens=12, usd=None, model="m"),
        PluginFailed(plugin="strategy.x (acme 1.0)", hook="kopt_propose", message="boom"),
        Evaluated(evaluation=evaluation(2, correct=False)),
        Confirmed(evaluation=evaluation(1)),
        Finished(status="improved", reason="no parents left"),
    ]


def write(folder: Path, events: list[Event]) -> list[Entry]:
    journal = Journal(folder)
    try:
        return [journal.append(event, Spend(trials=number)) for number, event in enumerate(events)]
    finally:
        journal.close()


def test_what_is_written_is_read(tmp_path: Path, events: list[Event]) -> None:
    written = write(tmp_path, events)
    assert list(read_journal(tmp_path).entries) == written
    assert [entry.event for entry in written] == events


def test_a_line_has_the_documented_form_and_no_source(tmp_path: Path, events: list[Event]) -> None:
    write(tmp_path, events)
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["seq"] for row in rows] == list(range(8))
    assert [row["kind"] for row in rows][:3] == ["opened", "proposed", "evaluated"]
    for row in rows:
        assert set(row) == {"schema", "seq", "time", "kind", "data", "spend"}
        assert row["schema"] == 1
    assert not any("extern" in line for line in lines)
    # Numbers 1 and 2 and the baseline, each once, however often it is named.
    assert len(list((tmp_path / "sources").iterdir())) == 3
    stored = tmp_path / "sources" / f"{rows[1]['data']['candidates'][0]['source_id']}.cpp"
    assert stored.read_text().startswith("// number 1")


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_journal(tmp_path).entries == ()


def test_a_cut_at_any_byte_loses_the_last_line_only(tmp_path: Path, events: list[Event]) -> None:
    written = write(tmp_path, events[2:6])
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        entries = read_journal(tmp_path).entries
        assert list(entries) == written[: whole[:cut].count(b"\n")]


@pytest.mark.parametrize("torn", [b'{"sch', b"\0\0\0\0", b"\0\0\0\n", b'{"a": 1\n', b"\xff\n"])
def test_a_torn_end_is_cut_off_before_more_is_written(
    tmp_path: Path, events: list[Event], torn: bytes
) -> None:
    first = write(tmp_path, events[:3])
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes() + torn)
    assert list(read_journal(tmp_path).entries) == first
    second = write(tmp_path, events[3:5])
    assert list(read_journal(tmp_path).entries) == first + second
    assert [entry.seq for entry in second] == [3, 4]


def damage(folder: Path, line: int, change: Callable[[str], str]) -> None:
    path = folder / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: line[:40] + "\n", "line 3 is damaged: it is no JSON object"),
        (lambda line: "\n", "line 3 is damaged"),
        (lambda line: "[]\n", "line 3 is damaged: it is no JSON object"),
        (lambda line: "", "entry 3 stands where entry 2 belongs"),
        (lambda line: line.replace('"status":"correct"', '"status":"fine"'), "status"),
        (lambda line: line.replace('"kind":"evaluated"', '"kind":"guessed"'), "line 3 is damaged"),
        (lambda line: line.replace('"evaluation":', '"other":'), "field is missing"),
        (lambda line: line.replace('"seconds":0.75', '"seconds":0.75,"new":1'), "new"),
        (lambda line: line.replace('"data":{', '"data":[{').replace("},\"spend", "}],\"spend"),
         "line 3 is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_line_in_the_middle_is_an_error(
    tmp_path: Path, events: list[Event], change: Callable[[str], str], words: str
) -> None:
    write(tmp_path, events)
    damage(tmp_path, 3, change)
    with pytest.raises(RunStoreError, match=words) as caught:
        read_journal(tmp_path)
    assert "start a new run" in str(caught.value)
    with pytest.raises(RunStoreError):
        Journal(tmp_path)


@pytest.mark.parametrize("line", [1, 8])
def test_an_unknown_schema_is_an_error(tmp_path: Path, events: list[Event], line: int) -> None:
    write(tmp_path, events)
    damage(tmp_path, line, lambda text: text.replace('"schema":1', '"schema":2'))
    with pytest.raises(RunStoreError, match=f"line {line}: schema 2.*version"):
        read_journal(tmp_path)


def test_a_changed_or_missing_source_is_an_error(tmp_path: Path, events: list[Event]) -> None:
    write(tmp_path, events[2:3])
    [source] = (tmp_path / "sources").iterdir()
    source.write_text("// another")
    with pytest.raises(RunStoreError, match=r"line 1: source .* another hash; restore it"):
        read_journal(tmp_path)
    source.unlink()
    with pytest.raises(RunStoreError, match=r"line 1: source .* cannot be read"):
        read_journal(tmp_path)


def test_infinite_figures_are_written_as_null(tmp_path: Path, candidate: Draw) -> None:
    verdict = Verification(
        verifier="v", status=Status.WRONG, error_ratio=float("inf"),
        stages=(StageResult(stage="values", outcome="fail"),),
    )  # fmt: skip
    wrong = Evaluation(candidate=candidate(1), status=Status.WRONG, verifications=(verdict,))
    write(tmp_path, [Evaluated(evaluation=wrong)])
    json.loads(
        (tmp_path / "journal.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name)
    )
    [entry] = read_journal(tmp_path).entries
    assert isinstance(entry.event, Evaluated)
    assert entry.event.evaluation.verifications[0].error_ratio is None


def test_what_could_not_be_read_again_is_not_written(
    tmp_path: Path, candidate: Draw, evaluation: Make
) -> None:
    journal = Journal(tmp_path)
    strange = Candidate(language="cpp", source="a", entry="f", settings={"x": float("nan")})
    with pytest.raises(RunStoreError, match=r"JSON cannot carry"):
        journal.append(Proposed(round_number=0, candidates=(strange,)), Spend())
    with pytest.raises(RunStoreError, match=r"damaged: spend.seconds"):
        journal.append(Evaluated(evaluation=evaluation(1)), Spend(seconds=float("nan")))
    entry = journal.append(Evaluated(evaluation=evaluation(1)), Spend())
    journal.close()
    assert read_journal(tmp_path).entries == (entry,)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The process's own limit on file size stands for the disk's."""
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from kopt.errors import RunStoreError\n"
        "from kopt.model.budget import Spend\n"
        "from kopt.runs.events import Finished\n"
        "from kopt.runs.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for number in range(100):\n"
        "    try:\n"
        "        journal.append(Finished(status='failed', reason='x' * 100), Spend())\n"
        "    except RunStoreError as error:\n"
        "        print(number, error)\n"
        "        break\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    number, _, message = done.stdout.partition(" ")
    assert 0 < int(number) < 10
    assert "free some space" in message
    path = tmp_path / "journal.jsonl"
    assert path.read_bytes().endswith(b"}\n")
    assert len(read_journal(tmp_path).entries) == int(number)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.booleans() | st.integers(-(2**40), 2**40) | texts
candidates = st.builds(
    Candidate,
    language=st.sampled_from(["cpp", "triton", "cuda", "mojo"]),
    source=texts,
    entry=texts,
    settings=st.dictionaries(texts, values | st.lists(values, max_size=3), max_size=3),
    knobs=st.dictionaries(
        st.from_regex(r"[A-Za-z_]\w{0,20}", fullmatch=True).filter(str.isascii),
        values.map(lambda value: Knob(default=value, choices=(value,))),
        max_size=2,
    ),
    parents=st.lists(texts, max_size=2).map(tuple),
    strategy=texts,
    idea=texts,
)
spends = st.builds(
    Spend,
    seconds=st.floats(0, 1e12, allow_nan=False),
    trials=st.integers(0, 10**9),
    usd=st.floats(0, 1e6, allow_nan=False),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(candidates, max_size=3), spends, st.integers(0, 10**6))
def test_any_candidate_survives_the_way_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Candidate], spend: Spend, number: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    event = Proposed(round_number=number, candidates=tuple(drawn))
    journal = Journal(folder)
    written = journal.append(event, spend)
    journal.close()
    [entry] = read_journal(folder).entries
    assert entry == written
    assert isinstance(entry.event, Proposed)
    assert [c.id for c in entry.event.candidates] == [c.id for c in drawn]


def test_half_a_surrogate_pair_in_a_source_is_kept(tmp_path: Path) -> None:
    odd = Candidate(language="cpp", source="// \ud83d\n", entry="f")
    write(tmp_path, [Proposed(round_number=0, candidates=(odd,))])
    [entry] = read_journal(tmp_path).entries
    assert entry.event == Proposed(round_number=0, candidates=(odd,))


APPENDER = """
import sys
from pathlib import Path
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.verification import Status
from kopt.runs.events import Evaluated
from kopt.runs.store import RunFolder

with RunFolder(Path(sys.argv[1])).writing() as journal:
    number = len(journal.entries)
    while True:
        candidate = Candidate(language="cpp", source=f"// {number}" + "\\n" * 5000, entry="f")
        evaluation = Evaluation(
            candidate=candidate, status=Status.WRONG, detail="x" * (number * 997 % 40000)
        )
        journal.append(Evaluated(evaluation=evaluation), Spend(trials=number))
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
        number += 1
"""


def test_twenty_kills_lose_nothing_that_was_accepted(folder: RunFolder) -> None:
    """A process appends until it is killed with SIGKILL; what it reported as stored is there."""
    chance = random.Random(7)
    accepted = -1
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(folder.path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.04))
        os.kill(process.pid, signal.SIGKILL)
        reported = (first + process.stdout.read()).split()
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        accepted = int(reported[-1])
        state = RunFolder(folder.path).load()
        # One more may be stored than was reported: the kill came between the two.
        assert accepted + 1 <= len(state.evaluations) <= accepted + 2
        numbers = [e.candidate.source.split()[1] for e in state.evaluations]
        assert numbers == [str(number) for number in range(len(numbers))]
    assert accepted >= 20


def _struck(name: str, *, after: bool) -> Callable[..., Any]:
    """Return a function of ``os`` that is interrupted, before it does its work or after."""
    real = getattr(os, name)

    def step(*arguments: Any) -> Any:
        if after:
            real(*arguments)
        raise KeyboardInterrupt

    return step


def test_interrupts_at_any_step_of_appending_leave_it_readable(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C inside append, then the line that tells of it: no number twice, none left out."""
    for name in ("write", "fsync", "fstat"):
        for after in (False, True):
            with folder.writing() as journal:
                with monkeypatch.context() as patch:
                    patch.setattr(f"kopt.runs.journal.os.{name}", _struck(name, after=after))
                    with pytest.raises(KeyboardInterrupt):
                        journal.append(Spent(tokens=1, model=f"{name} {after}"), Spend())
                journal.append(Finished(status="interrupted"), Spend())
        entries = read_journal(folder.path).entries
        assert [entry.seq for entry in entries] == list(range(len(entries)))
    kinds = [entry.event for entry in read_journal(folder.path).entries]
    assert sum(isinstance(event, Finished) for event in kinds) == 6
    # What was written whole counts; what was not begun does not.
    told = {event.model for event in kinds if isinstance(event, Spent)}
    assert told == {"write True", "fsync False", "fsync True"}
