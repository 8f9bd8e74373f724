from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.errors import RunStoreError
from kopt.evaluator import Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.problem import Problem
from kopt.model.run import Run, RunConfig
from kopt.runs.events import Confirmed, Evaluated, Finished, Opened, PluginFailed, Proposed, Spent
from kopt.runs.store import RunFolder, list_runs

Make = Callable[..., Evaluation]
Draw = Callable[[int], Candidate]


def test_a_new_run_has_all_that_was_settled(
    folder: RunFolder, problem: Problem, config: RunConfig
) -> None:
    assert re.fullmatch(r"\d{8}-\d{6}-rms-norm-[0-9a-f]{4}", folder.id)
    assert folder.path.name == folder.id
    raw = json.loads((folder.path / "run.json").read_text())
    assert raw["schema"] == 1
    again = RunFolder(folder.path).file
    assert (again.problem, again.config) == (problem, config)
    assert again.plugins == {"backend.cpp": "k 1"}
    assert again.kopt
    state = folder.load()
    assert (state.opening, state.evaluations, state.pending, state.finished) == (
        None, (), None, None,
    )  # fmt: skip
    assert (state.rounds, state.spend) == (0, Spend())


def test_kopts_own_folder_is_ignored_by_git_and_no_other(
    folder: RunFolder, tmp_path: Path, problem: Problem, config: RunConfig
) -> None:
    assert (folder.path.parent.parent / ".gitignore").read_text() == "*\n"
    RunFolder.create(tmp_path / "mine" / "runs", problem, config)
    assert not list((tmp_path / "mine").rglob(".gitignore"))


def test_nothing_half_made_is_seen(folder: RunFolder) -> None:
    root = folder.path.parent
    (root / f".new-{folder.id}-1").mkdir()
    (root / "20300101-000000-x-0000").mkdir()
    assert [run.id for run in list_runs(root)] == [folder.id]
    assert RunFolder.open("last", root).id == folder.id


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, problem: Problem, config: RunConfig
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunStoreError, match=r"file/runs: .*--runs-dir"):
        RunFolder.create(tmp_path / "file" / "runs", problem, config)


def test_a_run_is_found_by_path_id_prefix_and_last(
    folder: RunFolder, problem: Problem, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder.path.parent
    other = RunFolder.create(root, problem.model_copy(update={"name": "zzz"}), config)
    newest = RunFolder.create(root, problem.model_copy(update={"name": "aaa"}), config)
    for reference in (folder.id, folder.id[:-1], folder.path, str(folder.path)):
        if str(reference) == folder.id[:-1] and other.id.startswith(folder.id[:-1]):
            continue
        assert RunFolder.open(reference, root).id == folder.id
    assert RunFolder.open("last", root).id == newest.id
    assert [run.id for run in list_runs(root)] == [folder.id, other.id, newest.id]
    monkeypatch.chdir(root)
    assert RunFolder.open(f"./{folder.id}", Path("elsewhere")).id == folder.id


def test_a_run_that_is_not_there_brings_a_suggestion(
    folder: RunFolder, problem: Problem, config: RunConfig
) -> None:
    root = folder.path.parent
    wrong = folder.id[:-1] + ("0" if folder.id[-1] != "0" else "1")
    with pytest.raises(RunStoreError, match=f"no run '{wrong}'.*did you mean '{folder.id}'"):
        RunFolder.open(wrong, root)
    RunFolder.create(root, problem, config)
    with pytest.raises(RunStoreError, match="more than one run"):
        RunFolder.open(folder.id[:2], root)
    with pytest.raises(RunStoreError, match="newest is"):
        RunFolder.open("@", root)
    with pytest.raises(RunStoreError, match="no runs yet"):
        RunFolder.open("last", root / "none")
    with pytest.raises(RunStoreError, match="is no run"):
        RunFolder(root)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:50], "run.json is damaged: .*start a new run"),
        (lambda text: "[]", "a JSON object is wanted"),
        (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema 9"),
        (lambda text: text.replace('"device": "cpu"', '"device": "tpu"'), "config.device"),
    ],
)
def test_a_damaged_run_file_is_an_error_that_a_list_survives(
    folder: RunFolder, change: Callable[[str], str], words: str
) -> None:
    path = folder.path / "run.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(RunStoreError, match=words):
        RunFolder(folder.path)
    [run] = list_runs(folder.path.parent)
    assert run.id == folder.id
    assert re.search(words, run.fault)
    assert run.status is None


def test_the_state_is_what_the_journal_tells(
    folder: RunFolder, opening: Opening, evaluation: Make, candidate: Draw
) -> None:
    with folder.writing() as journal:
        journal.append(Opened(opening=opening), Spend(seconds=1))
        journal.append(Proposed(round_number=0, candidates=(candidate(1),)), Spend(seconds=2))
        journal.append(Evaluated(evaluation=evaluation(1)), Spend(seconds=3, trials=1))
        journal.append(
            Proposed(
                round_number=1, parents=(candidate(1).id,),
                candidates=(candidate(1), candidate(2), candidate(3), candidate(3)),
            ),
            Spend(seconds=4, trials=1),
        )  # fmt: skip
        journal.append(Spent(tokens=5), Spend(seconds=5, trials=1, tokens=5))
        journal.append(Evaluated(evaluation=evaluation(2, correct=False)), Spend(trials=2))
        journal.append(Evaluated(evaluation=evaluation(2)), Spend(trials=2))
        journal.append(PluginFailed(plugin="judge.x", hook="kopt_judge", message="m"), Spend())
    state = RunFolder(folder.path).load()
    assert state.opening == opening
    assert state.evaluations == (evaluation(1), evaluation(2, correct=False))
    assert state.rounds == 2
    assert state.pending is not None
    assert (state.pending.round_number, state.pending.parents) == (1, (candidate(1).id,))
    assert state.pending.candidates == (candidate(3),)
    assert state.spend == Spend(seconds=5, trials=2, tokens=5)
    assert [failure.plugin for failure in state.plugin_failures] == ["judge.x"]
    assert state.finished is None
    with folder.writing() as journal:
        journal.append(Evaluated(evaluation=evaluation(3)), Spend())
        journal.append(Confirmed(evaluation=evaluation(1)), Spend())
        journal.append(Finished(status="improved", reason="done"), Spend())
    state = folder.load()
    assert state.pending is None
    assert state.confirmed == evaluation(1)
    assert state.finished == Finished(status="improved", reason="done")
    assert folder.source_path(candidate(3)).read_text() == candidate(3).source
    with folder.writing() as journal:  # gone on with
        journal.append(Opened(opening=opening), Spend())
    assert folder.load().finished is None


OPENER = """
import sys
from pathlib import Path
from kopt.runs.store import RunFolder
with RunFolder(Path(sys.argv[1])).writing():
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_write_to_one_run(folder: RunFolder) -> None:
    assert [run.status for run in list_runs(folder.path.parent)] == ["interrupted"]
    with subprocess.Popen(
        [sys.executable, "-c", OPENER, str(folder.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"mine\n"
        with pytest.raises(RunStoreError, match=f"in use by process {process.pid};"):
            folder.writing().__enter__()
        assert folder.load().evaluations == ()  # reading needs no lock
        assert [run.status for run in list_runs(folder.path.parent)] == ["running"]
        process.kill()
    with (
        folder.writing(),  # a killed process leaves no lock behind
        pytest.raises(RunStoreError, match=f"process {os.getpid()};"),
    ):
        folder.writing().__enter__()


def test_the_result_is_read_as_it_was_written_even_from_a_moved_folder(
    folder: RunFolder, problem: Problem, config: RunConfig, evaluation: Make
) -> None:
    assert folder.read_result() is None
    run = Run(
        id=folder.id, folder=folder.path, status="improved", problem=problem, config=config,
        best=evaluation(1), source_path=folder.path / "sources" / "a.cpp", trials={"correct": 1},
    )  # fmt: skip
    path = folder.write_result(run)
    assert json.loads(path.read_text())["schema"] == 1
    assert folder.read_result() == run
    assert list_runs(folder.path.parent)[0].status == "improved"
    moved = folder.path.parent.parent / "moved"
    folder.path.rename(moved)
    again = RunFolder(moved).read_result()
    assert again is not None
    assert (again.folder, again.source_path) == (moved, moved / "sources" / "a.cpp")
