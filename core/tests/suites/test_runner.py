"""Running a suite: what is recorded when, and how it is gone on with."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kopt.errors import ConfigError, ProblemError, RunStoreError
from kopt.evaluator import Baseline, Opening
from kopt.model.budget import Spend
from kopt.model.candidate import Candidate
from kopt.model.measurement import Measurement
from kopt.model.run import RunConfig
from kopt.runs.events import Confirmed, Entry, Evaluated, Opened
from kopt.runs.state import state_of
from kopt.runs.store import RunFolder
from kopt.suites.problem import Suite
from kopt.suites.records import SuiteRecord, SuiteSettings, read_suite
from kopt.suites.runner import SuiteOutcome, _closest, _left, _written, run_suite, solve
from kopt.testing.problems import vector_add, vector_add_signature
from kopt.testing.records import BASELINE, cpu, failed, gpu, measured


class Bench:
    """A folder with a record; each call runs the suite once."""

    def __init__(self, made: Any, home: Path) -> None:
        self.made, self.home, self.file = made, home, home / "record.json"
        self.listener = made.Listener()

    def __call__(self, solver: Any, suite: Suite | None = None, **more: Any) -> SuiteOutcome:
        self.listener = self.made.Listener()
        settings = more.pop("settings", self.made.SETTINGS)
        return run_suite(
            suite or self.made.suite(), self.file, settings, self.listener, solving=solver,
            runs_root=self.home / "suites", **{"device": cpu(), **more},
        )  # fmt: skip

    @property
    def record(self) -> SuiteRecord:
        return read_suite(self.file)


@pytest.fixture
def bench(made: Any, tmp_path: Path) -> Bench:
    return Bench(made, tmp_path)


def ids(record: SuiteRecord) -> list[str]:
    return [row.id for row in record.rows]


def test_every_problem_gets_its_row(bench: Bench) -> None:
    solver = bench.made.Solver(p2="not-improved")
    outcome = bench(solver)
    assert solver.solved == [1, 2, 3]
    assert outcome.complete
    assert bench.record == outcome.record
    assert [row.verdict for row in outcome.record.rows] == ["improved", "baseline", "improved"]
    assert [row.name for row in bench.listener.rows] == ["add1", "add2", "add3"]
    assert [place for place, *_ in bench.listener.begun] == ["1/3", "2/3", "3/3"]
    runs = {path.name for path in Path(outcome.record.runs).iterdir()}
    assert {row.run for row in outcome.record.rows} == runs


def test_the_record_is_written_after_each_problem(bench: Bench) -> None:
    seen = []

    class Looking(bench.made.Solver):  # type: ignore[misc,name-defined]
        def __call__(self, *arguments: Any) -> Any:
            seen.append(ids(bench.record))
            return super().__call__(*arguments)

    bench(Looking())
    assert seen == [[], ["1"], ["1", "2"]]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ProblemError("the reference raised"), "the reference raised"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_a_failure_is_a_row_and_not_the_end(bench: Bench, error: Exception, said: str) -> None:
    outcome = bench(bench.made.Solver(p2=error))
    assert ids(outcome.record) == ["1", "2", "3"]
    row = outcome.record.rows[1]
    assert (row.verdict, row.status, row.reason) == ("failed", "error", said)
    assert not outcome.complete


def test_a_problem_that_cannot_be_read_is_a_row(bench: Bench) -> None:
    def broken() -> Any:
        raise ProblemError("2.py:1: syntax error")

    whole = bench.made.suite()
    first, second, third = whole.problems
    odd = type(second)(second.id, second.name, broken)
    outcome = bench(bench.made.Solver(), Suite(whole.name, whole.dtype, (first, odd, third)))
    assert [row.verdict for row in outcome.record.rows] == ["improved", "failed", "improved"]
    assert outcome.record.rows[1].problem_id == ""


def test_the_same_call_again_does_only_what_is_missing(bench: Bench) -> None:
    bench(bench.made.Solver(), numbers=(1, 3))
    assert ids(bench.record) == ["1", "3"]
    solver = bench.made.Solver()
    outcome = bench(solver)
    assert solver.solved == [2]
    assert ids(outcome.record) == ["1", "2", "3"]
    assert bench(bench.made.Solver()).complete


def test_what_was_asked_for_before_is_still_planned(bench: Bench) -> None:
    bench(bench.made.Solver(p2=KeyboardInterrupt()))
    outcome = bench(bench.made.Solver(), numbers=(3,))
    assert [each.id for each in outcome.record.missing] == ["2"]
    assert not outcome.interrupted
    assert not outcome.complete


@pytest.mark.parametrize("how", [KeyboardInterrupt(), "interrupted"])
def test_an_interruption_ends_it_and_leaves_no_row(bench: Bench, how: Any) -> None:
    outcome = bench(bench.made.Solver(p2=how))
    assert outcome.interrupted
    assert ids(bench.record) == ["1"]


def test_a_run_that_was_interrupted_is_gone_on_with(bench: Bench) -> None:
    bench(bench.made.Solver(p2="interrupted"))
    solver = bench.made.Solver()
    outcome = bench(solver)
    assert solver.solved == [2, 3]
    assert solver.left[0] is not None and solver.left[1] is None
    assert outcome.record.rows[1].run == solver.left[0].id
    place, name, seconds = bench.listener.begun[0]
    assert (place, name) == ("2/3", "add2")
    assert seconds is not None  # what the earlier part has used up


def test_a_run_that_ended_before_its_row_was_written_is_not_done_again(
    bench: Bench, made: Any
) -> None:
    """Killed between a run's last word and the suite's: kopt's own solver takes its result."""
    bench(made.Solver(p2=KeyboardInterrupt()))
    problem = bench.made.problem(2).load()
    ended = made.ended(problem, Path(bench.record.runs))
    folder = RunFolder(ended.folder)
    found = solve(problem, made.SETTINGS, Path(bench.record.runs), folder, made.Silent())
    assert found == ended
    solver = made.Solver()
    bench(solver, numbers=(2,))
    assert solver.left[0] is not None and solver.left[0].id == ended.id


def test_again_runs_anew_and_not_on(bench: Bench) -> None:
    first = bench(bench.made.Solver(p3=ProblemError("no"))).record
    solver = bench.made.Solver()
    outcome = bench(solver, again={"1"})
    assert solver.solved == [1]
    assert solver.left == [None]
    assert outcome.record.replaced == (first.rows[0].run,)
    assert outcome.record.rows[0].run != first.rows[0].run
    solver = bench.made.Solver()
    assert bench(solver, again={"failed"}).complete
    assert solver.solved == [3]
    with pytest.raises(ConfigError, match="--again 9: not among the problems"):
        bench(bench.made.Solver(), again={"9"})


def test_a_run_that_was_lost_is_not_gone_on_with(bench: Bench) -> None:
    """Its judge died, so the row names it; --again begins another."""
    row = bench(bench.made.Solver(p2="lost")).record.rows[1]
    assert row.reason == "the judge died"
    assert row.run
    solver = bench.made.Solver()
    bench(solver, again={"failed"})
    assert (solver.solved, solver.left) == ([2], [None])


def test_another_device_is_refused(bench: Bench) -> None:
    bench(bench.made.Solver(), numbers=(1,))
    with pytest.raises(RunStoreError, match=r"begun elsewhere \(.*device: test cpu -> test gpu"):
        bench(bench.made.Solver(), device=gpu())
    other = cpu().model_copy(update={"versions": {"torch": "9.9"}})
    with pytest.raises(RunStoreError, match=r"torch: absent -> 9\.9"):
        bench(bench.made.Solver(), device=other)
    assert ids(bench.record) == ["1"]


def test_a_record_that_came_without_its_runs_is_gone_on_with(bench: Bench) -> None:
    """As where it was carried to another machine with the same device."""
    shutil.rmtree(bench(bench.made.Solver(p2="interrupted")).record.runs)
    solver = bench.made.Solver()
    assert bench(solver).complete
    assert (solver.solved, solver.left) == ([2, 3], [None, None])


def test_other_settings_and_another_suite_are_refused(bench: Bench) -> None:
    bench(bench.made.Solver(), numbers=(1,))
    with pytest.raises(ConfigError, match=r"seconds: 60\.0 -> 5\.0"):
        bench(bench.made.Solver(), settings=SuiteSettings(seconds=5.0))
    with pytest.raises(ConfigError, match=r"is of made-up in float32, not of other"):
        bench(bench.made.Solver(), bench.made.suite(3, "other"))


def test_a_problem_that_has_changed_is_refused(bench: Bench) -> None:
    bench(bench.made.Solver())
    whole = bench.made.suite()
    first, second, third = whole.problems
    changed = type(second)(second.id, second.name, bench.made.problem(7).load)
    suite = Suite(whole.name, whole.dtype, (first, changed, third))
    with pytest.raises(ConfigError, match=r"problem 2 \(add2\) has changed .* --again 2"):
        bench(bench.made.Solver(), suite)
    solver = bench.made.Solver()
    bench(solver, suite, again={"2"})
    assert solver.solved == [7]


def test_one_process_at_a_time(bench: Bench) -> None:
    bench(bench.made.Solver(), numbers=(1,))
    [lock] = (bench.home / "suites").glob(".record-*.lock")
    with lock.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(RunStoreError, match="another `kopt suite run` is writing"):
            bench(bench.made.Solver())
    assert bench(bench.made.Solver()).complete


def test_runs_below_a_kopt_folder_are_not_committed(made: Any, tmp_path: Path) -> None:
    root = tmp_path / ".kopt" / "suites"
    run_suite(
        made.suite(1), tmp_path / "r.json", made.SETTINGS, made.Listener(), solving=made.Solver(),
        runs_root=root, device=cpu(),
    )  # fmt: skip
    assert (root.parent / ".gitignore").read_text() == "*\n"


PROGRAM = """
import sys
import threading
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import made_up
from kopt.suites.runner import run_suite
from kopt.testing.records import cpu
outcome = run_suite(
    made_up.suite(), Path("record.json"), made_up.SETTINGS, made_up.Listener(),
    solving=made_up.Solver(p2=float(sys.argv[2])), runs_root=Path("suites"), device=cpu(),
)
sys.exit(0 if outcome.complete else 1)
"""


def start(home: Path, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(seconds)]
    return subprocess.Popen(command, cwd=home, env={**os.environ, "KOPT_RUNS_DIR": ""})


def test_a_suite_that_was_killed_goes_on(made: Any, tmp_path: Path) -> None:
    """A real process dies by SIGKILL in the second problem; another one does the rest."""
    file = tmp_path / "record.json"
    killed = start(tmp_path, 60.0)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("suites/*/*/journal.jsonl"))[1:]:
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    before = read_suite(file)
    assert ids(before) == ["1"]
    [left] = [
        path.parent.name for path in Path(tmp_path, before.runs).glob("*/run.json")
        if path.parent.name != before.rows[0].run
    ]  # fmt: skip

    assert start(tmp_path, 0.0).wait() == 0
    after = read_suite(file)
    assert ids(after) == ["1", "2", "3"]
    assert after.rows[0] == before.rows[0]
    assert after.rows[1].run == left


# --- several at a time --------------------------------------------------------------------------


def test_problems_beside_each_other_are_recorded_in_the_order_of_the_suite(bench: Bench) -> None:
    together = threading.Barrier(3, timeout=20)

    class Together(bench.made.Solver):  # type: ignore[misc, name-defined]
        def __call__(self, *arguments: Any) -> Any:
            together.wait()  # broken, and so an error in each row, unless all three run at once
            return super().__call__(*arguments)

    outcome = bench(Together(), jobs=3)
    assert outcome.complete
    assert ids(outcome.record) == ["1", "2", "3"]
    assert bench.record == outcome.record


def test_one_that_is_interrupted_does_not_lose_those_beside_it(bench: Bench) -> None:
    outcome = bench(bench.made.Solver(p1=KeyboardInterrupt()), jobs=2)
    assert outcome.interrupted
    assert ids(bench.record) == ["2", "3"]
    assert ids(bench(bench.made.Solver(), jobs=2).record) == ["1", "2", "3"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_lacked_memory_beside_others_is_run_again_alone(bench: Bench, jobs: int) -> None:
    tries: list[int] = []

    class Crowded(bench.made.Solver):  # type: ignore[misc, name-defined]
        def __call__(self, problem: Any, *arguments: Any) -> Any:
            size = problem.inputs[0].shape[0] // 1024
            tries.append(size)
            if tries.count(2) == 1 and size == 2:
                raise ProblemError("it does not fit: CUDA out of memory")
            return super().__call__(problem, *arguments)

    outcome = bench(Crowded(), jobs=jobs)
    assert sorted(tries) == ([1, 2, 3] if jobs == 1 else [1, 2, 2, 3])
    assert ids(bench.record) == ["1", "2", "3"]
    assert bench.record.rows[1].verdict == ("failed" if jobs == 1 else "improved")
    assert bench.record == outcome.record


@pytest.mark.parametrize(
    ("changed", "short"),
    [
        ({}, False),
        ({"trials": {"correct": 2, "oom": 1}}, True),
        ({"failed_baselines": {"vendor": "OutOfMemoryError: CUDA out of memory."}}, True),
        ({"failed_baselines": {"vendor": "wrong: 3x of the error"}}, False),
        ({"reason": "it does not fit: CUDA out of memory. Tried to"}, True),
    ],
)
def test_a_row_says_whether_memory_was_short(
    made: Any, changed: dict[str, Any], short: bool
) -> None:
    row = made.row(1).model_copy(update=changed)
    assert row.short_of_memory is short


def test_what_lacks_memory_is_run_again_with_ever_fewer_beside_it(bench: Bench) -> None:
    tries: list[int] = []

    class Crowded(bench.made.Solver):  # type: ignore[misc, name-defined]
        def __call__(self, problem: Any, *arguments: Any) -> Any:
            size = problem.inputs[0].shape[0] // 1024
            tries.append(size)
            if tries.count(size) <= {1: 0, 2: 1, 3: 2}[size]:
                raise ProblemError("it does not fit: CUDA out of memory")
            return super().__call__(problem, *arguments)

    outcome = bench(Crowded(), jobs=5)
    assert sorted(tries) == [1, 2, 2, 3, 3, 3]
    assert [row.jobs for row in outcome.record.rows] == [5, 2, 1]
    assert outcome.complete


def test_what_lacked_memory_is_run_again_by_the_next_call(bench: Bench) -> None:
    class Crowded(bench.made.Solver):  # type: ignore[misc, name-defined]
        interrupts = False

        def __call__(self, problem: Any, *arguments: Any) -> Any:
            if problem.inputs[0].shape[0] // 1024 == 2:
                if self.interrupts:
                    raise KeyboardInterrupt
                self.interrupts = True
                raise ProblemError("it does not fit: CUDA out of memory")
            return super().__call__(problem, *arguments)

    outcome = bench(Crowded(), jobs=2)
    assert outcome.interrupted
    assert not outcome.complete
    assert [row.id for row in bench.record.rows if row.crowded] == ["2"]
    again = bench(bench.made.Solver(), jobs=2)
    assert again.complete
    assert [row.verdict for row in bench.record.rows] == ["improved"] * 3
    assert [row.jobs for row in bench.record.rows] == [2, 1, 2]


def test_what_lacks_memory_alone_has_its_answer(bench: Bench) -> None:
    class Small(bench.made.Solver):  # type: ignore[misc, name-defined]
        def __call__(self, problem: Any, *arguments: Any) -> Any:
            raise ProblemError("it does not fit: CUDA out of memory")

    bench(Small(), jobs=2)
    assert not any(row.crowded for row in bench.record.rows)
    assert [row.verdict for row in bench.record.rows] == ["failed"] * 3


def test_what_lacked_memory_keeps_its_row_until_there_is_another(bench: Bench) -> None:
    tries: list[int] = []

    class Interrupted(bench.made.Solver):  # type: ignore[misc, name-defined]
        def __call__(self, problem: Any, *arguments: Any) -> Any:
            tries.append(problem.inputs[0].shape[0] // 1024)
            if tries.count(2) == 2:
                raise KeyboardInterrupt
            if tries[-1] == 2:
                raise ProblemError("it does not fit: CUDA out of memory")
            return super().__call__(problem, *arguments)

    outcome = bench(Interrupted(), jobs=2)
    assert outcome.interrupted
    assert tries.count(2) == 2
    assert ids(bench.record) == ["1", "2", "3"]
    assert bench.record.rows[1].verdict == "failed"
    assert bench.record == outcome.record


def test_runs_that_are_just_being_made_are_nobodys(bench: Bench) -> None:
    """Their folders vanish between being listed and being looked at, which ended a whole suite."""
    bench(bench.made.Solver())
    record = bench.record
    problem = bench.made.problem(1).load()
    made = RunFolder.create(Path(record.runs), problem, RunConfig(
        backend="cpp", strategies=(), search="beam", verifiers=(), device="cpu"))  # fmt: skip
    left = _left(record, problem)
    assert left is not None and left.path == made.path
    made.path.rename(made.path.with_name(f".new-{made.path.name}"))
    assert _left(record, problem) is None
    assert _written(made.path / "run.json") == 0


def test_what_came_closest_is_the_searchs_where_no_confirmation_says_otherwise() -> None:
    candidates = [Candidate(source=f"{n}", language="cpp", entry="f") for n in range(3)]
    opening = Opening(
        device=cpu(), signature=vector_add_signature(), fastest=BASELINE, noise=0.01, copy_ms={},
        baselines=(Baseline(name=BASELINE, candidate=candidates[0], evaluation=measured(candidates[0], 1.0)),),
    )  # fmt: skip
    events: list[Any] = [
        Opened(opening=opening),
        Evaluated(evaluation=measured(candidates[0], 0.5)),
        Evaluated(evaluation=failed(candidates[1])),
        Evaluated(evaluation=measured(candidates[2], 0.9)),
    ]

    def closest() -> Measurement | None:
        entries = [Entry(seq=n, time=0.0, event=e, spend=Spend()) for n, e in enumerate(events)]
        config = RunConfig(backend="cpp", strategies=(), search="beam", verifiers=(), device="cpu")
        return _closest(state_of(vector_add(), config, entries))

    assert closest() == measured(candidates[2], 0.9).measurement
    events.append(Confirmed(evaluation=failed(candidates[2])))
    assert closest() is None, "it was found wrong"
    del events[1:]
    assert closest() is None, "there was none"
