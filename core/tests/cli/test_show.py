"""``kopt show`` and ``kopt resume`` on runs that ended in different ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.usefixtures("runs")
def test_no_runs_yet(kopt: Run) -> None:
    assert kopt("show").out == "no runs here; kopt optimize PROBLEM makes one\n"
    assert json.loads(kopt("show", "--json").out) == {"schema": 1, "runs": []}
    for verb in ("show", "resume"):
        said = kopt(verb, "last")
        assert (said.code, said.out) == (4, "")
        assert "there are no runs yet" in said.err


def test_the_list_tells_how_each_run_ended(kopt: Run, recorded: Run) -> None:
    ended, killed = recorded("improved"), recorded(None)
    said = kopt("show")
    assert said.code == 0
    lines = {line.split()[0]: line.split()[1:] for line in said.out.splitlines()[1:]}
    assert lines == {ended.id: ["vector_add", "improved"], killed.id: ["vector_add", "interrupted"]}


def test_a_run_shows_its_candidates_and_its_verdict(kopt: Run, recorded: Run) -> None:
    folder = recorded("improved")
    said = kopt("show", folder.id[:-1])
    assert said.code == 0
    first, second = said.out.splitlines()[1:3]
    assert "1* " in first
    assert "one [pass]" in first  # and not taken for markup
    assert "2.000x" in first
    assert "wrong" in second
    assert "The best kernel beats eager by 2.00x (1.98 to 2.02)." in said.out
    assert "baseline torch.compile was left out: no [compiler]" in said.out


def test_a_killed_run_says_how_to_go_on(kopt: Run, recorded: Run) -> None:
    folder = recorded(None)
    said = kopt("show", "last")
    assert f"go on with: kopt resume {folder.id}" in said.out
    data = json.loads(kopt("show", "last", "--json").out)
    assert (data["status"], data["best"]) == ("interrupted", None)
    assert data["trials"] == {"correct": 1, "wrong": 1}
    assert data["spend"]["trials"] == 2
    assert list(data["baselines"]) == ["eager"]
    assert len(data["evaluations"]) == 2


def test_a_run_at_work_says_so(kopt: Run, recorded: Run) -> None:
    folder = recorded("interrupted")
    with folder.writing():
        assert json.loads(kopt("show", "last", "--json").out)["status"] == "running"
        said = kopt("resume", "last")
    assert said.code == 4


@pytest.mark.parametrize("status", ["improved", "not-improved", "failed"])
def test_a_run_that_has_ended_is_not_resumed(kopt: Run, recorded: Run, status: str) -> None:
    folder = recorded(status)
    result = (folder.path / "result.json").read_bytes()
    said = kopt("resume", *(["last"] if status == "failed" else []))  # the last one unless named
    assert (said.code, said.out) == (4, "")
    assert f"has ended ({status}: why)" in said.err
    assert (folder.path / "result.json").read_bytes() == result


def test_a_candidate_by_the_beginning_of_its_id(kopt: Run, recorded: Run) -> None:
    evaluation = recorded("improved").load().evaluations[0]
    said = kopt("show", "last", "--candidate", evaluation.id[:6])
    assert said.code == 0
    assert said.out.startswith(f"{evaluation.id} correct\nstarters: one [pass]\n")
    assert said.out.endswith("\n// kernel 1\n")
    data = json.loads(kopt("show", "last", "--candidate", evaluation.id, "--json").out)
    assert Path(data["source_path"]).read_text() == data["source"] == "// kernel 1\n"


def test_a_candidate_that_is_not_there(kopt: Run, recorded: Run) -> None:
    known = [evaluation.id[:8] for evaluation in recorded(None).load().evaluations]
    said = kopt("show", "last", "--candidate", "xyz")
    assert (said.code, said.out) == (4, "")
    assert all(name in said.err for name in known)
    assert "needs a run" in kopt("show", "--candidate", "xyz").err


def test_the_runs_folder_is_where_the_configuration_says(
    kopt: Run, recorded: Run, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded(None)
    moved = runs.parent.parent / "elsewhere"
    runs.rename(moved)
    assert "no runs here" in kopt("show").out
    assert folder.id in kopt("show", "--runs-dir", moved).out
    monkeypatch.setenv("KOPT_RUNS_DIR", str(moved))
    assert folder.id in kopt("show").out
