"""`kopt selftest` as a user has it: every attack by its own name, every honest kernel accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kopt.model.kernel_file import load_kernel
from kopt.selftest.cases import CASES, FIXTURES, KNOWN_OPEN

pytest.importorskip("torch")

ATTACKS = {case.name: case for case in CASES if case.kind == "attack"}
CONTROLS = {case.name: case for case in CASES if case.kind == "control"}


def kopt(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KOPT_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "kopt", *arguments], capture_output=True, text=True, check=False,
        cwd=cache, env=environment, timeout=500,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return kopt("selftest", "--json", cache=tmp_path_factory.mktemp("selftest"))


@pytest.fixture(scope="module")
def board(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.mark.slow
class TestScoreboard:
    def test_keys(self, board: dict[str, Any]) -> None:
        assert list(board) == ["attacks", "controls", "summary"]
        assert set(board["attacks"]) == set(ATTACKS)
        assert set(board["controls"]) == set(CONTROLS)
        assert all(set(a) == {"expected", "outcome", "caught"} for a in board["attacks"].values())
        assert all(set(c) == {"outcome", "accepted"} for c in board["controls"].values())

    def test_what_is_not_known_to_be_open_is_caught_by_its_own_name(
        self, board: dict[str, Any]
    ) -> None:
        missed = {
            name: found["outcome"] for name, found in board["attacks"].items()
            if found["outcome"] not in found["expected"] and name not in KNOWN_OPEN
        }  # fmt: skip
        assert not missed

    def test_caught_is_what_the_outcome_says(self, board: dict[str, Any]) -> None:
        for found in board["attacks"].values():
            assert found["caught"] == (found["outcome"] in found["expected"])

    def test_what_is_caught_is_no_longer_listed_as_open(self, board: dict[str, Any]) -> None:
        assert not [name for name in KNOWN_OPEN if board["attacks"][name]["caught"]]

    def test_honest_kernels_are_accepted(self, board: dict[str, Any]) -> None:
        rejected = {n: c["outcome"] for n, c in board["controls"].items() if not c["accepted"]}
        assert not rejected

    def test_the_exit_code_and_the_summary_say_whether_all_went_well(
        self, board: dict[str, Any], done: subprocess.CompletedProcess[str]
    ) -> None:
        assert board["summary"] == {
            "attacks": len(ATTACKS), "caught": len(ATTACKS) - len(KNOWN_OPEN),
            "controls": len(CONTROLS), "accepted": len(CONTROLS), "passed": not KNOWN_OPEN,
        }  # fmt: skip
        assert done.returncode == (1 if KNOWN_OPEN else 0)


def test_no_attack_is_expected_to_be_accepted() -> None:
    assert not [name for name, case in ATTACKS.items() if "correct" in case.expected]
    assert all(case.expected == ("correct",) for case in CONTROLS.values())


def test_names_are_unique_and_what_is_open_is_an_attack() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(KNOWN_OPEN) <= set(ATTACKS)


def test_every_kernel_file_belongs_to_a_case_and_the_other_way_round() -> None:
    kernels = {path.name for path in (FIXTURES / "kernels").iterdir()}
    assert kernels == {case.kernel for case in CASES}
    problems = {path.name for path in (FIXTURES / "problems").iterdir() if path.is_dir()}
    assert problems - {"__pycache__"} == {case.problem for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_files_load_and_say_what_they_do(case: Any) -> None:
    path = FIXTURES / "kernels" / case.kernel
    assert load_kernel(path).language == ("cpp" if case.device == "cpu" else "torch")
    assert path.read_text(encoding="utf-8").splitlines()[0].lstrip("/# ").strip()
