"""`kopt selftest` as a user has it: every attack by its own name, every honest kernel accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopt.config import Settings
from kopt.errors import ProblemError
from kopt.model.kernel_file import load_kernel
from kopt.optimize import load_problem
from kopt.selftest import runner
from kopt.selftest.cases import CASES, FIXTURES, KNOWN_OPEN, Case
from kopt.single import open_bench

pytest.importorskip("torch")

HERE = runner.selected(CASES, "cpu")
ATTACKS = {case.name: case for case in HERE if case.kind == "attack"}
CONTROLS = {case.name: case for case in HERE if case.kind == "control"}
ON_GPU = [case for case in CASES if case.device != "cpu"]


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
@pytest.mark.xdist_group("selftest")  # one run of it serves every test here
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


class Told:
    """Notes what it is told, and in which threads."""

    def __init__(self) -> None:
        self.threads = {threading.get_ident()}
        self.prepared: list[str] = []
        self.judgements: list[tuple[str, str, str]] = []

    def preparing(self, problem: str, device: str) -> None:
        self.threads.add(threading.get_ident())
        self.prepared.append(problem)

    def judged(self, kernel: str, status: str, count: str) -> None:
        self.threads.add(threading.get_ident())
        self.judgements.append((kernel, status, count))

    opening = preparing

    def opened(self, opening: object) -> None:
        self.threads.add(threading.get_ident())


def cases_named(*names: str) -> list[Case]:
    return [case for case in HERE if case.name in names]


class TestSideBySide:
    def test_each_finding_is_told_once_in_the_thread_that_asked(self) -> None:
        cases, told = cases_named("zeros", "part-of-sum", "integers"), Told()
        found = list(runner.run(cases, "cpu", told, jobs=2))
        assert {f.case.name: f.outcome for f in found} == {
            "zeros": "wrong", "part-of-sum": "wrong", "integers": "correct",
        }  # fmt: skip
        assert all(finding.seconds > 0 for finding in found)
        assert sorted(told.prepared) == ["counts, 1 kernel", "norm, 1 kernel", "sums, 1 kernel"]
        assert told.judgements == [
            (f.case.name, f.outcome, f"{n}/3") for n, f in enumerate(found, start=1)
        ]
        assert told.threads == {threading.get_ident()}

    def test_what_a_group_raises_is_raised_to_the_caller(self) -> None:
        (case,) = cases_named("zeros")
        lost = case.model_copy(update={"problem": "no_such_problem"})
        with pytest.raises(ProblemError, match="no_such_problem"):
            list(runner.run([lost], "cpu", jobs=2))

    def test_an_end_before_the_last_finding_ends_every_judge(self) -> None:
        # Tests before this one may have left some of theirs.
        others, threads = set(psutil.Process().children(recursive=True)), threading.active_count()
        found = runner.run(cases_named("zeros", "constant", "part-of-sum"), "cpu", jobs=2)
        next(iter(found))
        found.close()  # type: ignore[attr-defined]
        assert threading.active_count() <= threads
        assert not set(psutil.Process().children(recursive=True)) - others


def test_what_replaces_the_clocks_and_statistics_of_its_process_is_timed_as_slow_as_it_is() -> None:
    kernel = load_kernel(FIXTURES / "kernels" / "slow-with-patched-statistics.py.txt")
    settings = Settings(device="cpu", options={"backend.torch": {"compile": False}})
    with open_bench(load_problem(FIXTURES / "problems" / "norm"), [kernel], settings) as bench:
        found = bench.measure(kernel)
    assert found.status == "correct"
    assert found.measurement is not None
    # It does everything fifty times: no noise makes that as fast as doing it once.
    assert max(interval.median for interval in found.measurement.speedup.values()) < 0.5


def test_no_attack_is_expected_to_be_accepted() -> None:
    for case in CASES:
        assert ("correct" in case.expected) == (case.kind == "control"), case.name
        assert case.kind == "attack" or case.expected == ("correct",)


@pytest.mark.parametrize("cases", [HERE, ON_GPU], ids=["cpu", "gpu"])
def test_names_are_unique_and_what_is_open_is_an_attack(cases: list[Case]) -> None:
    assert len({case.name for case in cases}) == len(cases)
    assert set(KNOWN_OPEN) <= {case.name for case in CASES if case.kind == "attack"}


def test_the_list_of_a_gpu_is_long_enough_to_mean_something() -> None:
    kinds = [case.kind for case in ON_GPU]
    assert kinds.count("attack") >= 46
    assert kinds.count("control") >= 14


def test_every_kernel_file_belongs_to_a_case_and_the_other_way_round() -> None:
    kernels = {path.name for path in (FIXTURES / "kernels").iterdir()}
    assert kernels == {case.kernel for case in CASES}
    problems = {path.name for path in (FIXTURES / "problems").iterdir() if path.is_dir()}
    assert problems - {"__pycache__"} == {case.problem.partition("/")[0] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.device}")
def test_kernel_files_load_and_say_what_they_do(case: Case) -> None:
    path = FIXTURES / "kernels" / case.kernel
    languages = {"cpu": {"cpp"}, "any": {"torch"}, "gpu": {"triton", "torch"}}
    assert load_kernel(path).language in languages[case.device]
    assert path.read_text(encoding="utf-8").splitlines()[0].lstrip("/# ").strip()
