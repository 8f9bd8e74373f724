"""Running a suite: one problem after another, each outcome on the disk before the next begins."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kopt.errors import KoptError, RunStoreError
from kopt.model.budget import Budget, Spend
from kopt.model.device import Device
from kopt.model.history import History
from kopt.model.measurement import Measurement
from kopt.model.problem import Problem
from kopt.model.run import Run
from kopt.optimize import optimize, resume
from kopt.reporter import Reporter
from kopt.runs.state import RunState
from kopt.runs.store import RunFolder
from kopt.suites.keeping import begun, continued, held, refuse_changed, with_plan, without
from kopt.suites.preparing import device_here, settled
from kopt.suites.problem import Suite, SuiteProblem
from kopt.suites.records import Row, SuiteRecord, SuiteSettings, read_suite, write_suite
from kopt.suites.rows import failed_row, row_of


class Told(Protocol):
    """Who is told how a suite goes on; must not raise."""

    def begins(
        self, problem: SuiteProblem, place: str, budget: Budget, spend: Spend | None
    ) -> AbstractContextManager[Reporter]:
        """A problem's turn; ``place`` as 3/100, ``spend`` of an earlier part of its run."""
        ...

    def ended(self, row: Row) -> None:
        """A problem's outcome is in the record."""
        ...


class Solve(Protocol):
    """Runs one problem; ``left`` is its run that did not end, if there is one."""

    def __call__(
        self,
        problem: Problem,
        settings: SuiteSettings,
        runs: Path,
        left: RunFolder | None,
        reporter: Reporter,
    ) -> Run:
        """Return the run, which has ended or was interrupted. Raises KoptError."""
        ...


@dataclass(frozen=True)
class SuiteOutcome:
    """How far a suite came."""

    record: SuiteRecord
    interrupted: bool

    @property
    def complete(self) -> bool:
        """Whether every problem that was ever asked for has an answer."""
        lacking = any(row.verdict == "failed" or row.crowded for row in self.record.rows)
        return not (self.interrupted or lacking or self.record.missing)


def solve(
    problem: Problem,
    settings: SuiteSettings,
    runs: Path,
    left: RunFolder | None,
    reporter: Reporter,
) -> Run:
    """Optimise a problem as ``kopt.optimize`` does, or go on with its run."""
    if left is not None:
        ended = left.read_result()
        if ended is not None and ended.status != "interrupted":
            return ended  # it was killed between its last word and the suite's
        return resume(left, reporter)
    return optimize(
        problem, budget=Budget(seconds=settings.seconds, trials=settings.trials),
        options=settings.options, confirm="faster", runs_dir=runs, reporter=reporter,
        **settings.named,
    )  # fmt: skip


def run_suite(
    suite: Suite,
    file: Path,
    settings: SuiteSettings,
    told: Told,
    *,
    numbers: Sequence[int] | None = None,
    again: Collection[str] = (),
    runs_root: Path = Path(".kopt/suites"),
    solving: Solve = solve,
    device: Device | None = None,
    jobs: int = 1,
) -> SuiteOutcome:
    """Run what is missing of a suite, and return how far it came.

    :param file: the record; made where it is not there.
    :param numbers: which problems; None: all.
    :param again: ids whose rows make way, or ``failed``: all that failed.
    :param device: where it runs, if that is known already.
    :param jobs: problems at a time; for more than one, ``solving`` is called by threads, and what
        lacked memory beside others is run again, half as many at a time, at last alone.
    Raises KoptError where nothing can be run, or where the record belongs to other settings or
    another device.
    """
    chosen = suite.chosen(numbers)
    kind, plugins = settled(settings) if device is None else (device.kind, {})
    with held(file, runs_root):
        before = read_suite(file) if file.exists() else None
        here = device or device_here(kind)
        if before is None:
            record = begun(suite, settings, here, plugins, runs_root, file)
        else:
            record = continued(before, suite, settings, here)
        record = without(with_plan(record, suite, chosen), chosen, again)
        refuse_changed(record, chosen, file)
        write_suite(file, record)
        return _go_on(record, file, chosen, told, solving, jobs)


def _go_on(
    record: SuiteRecord,
    file: Path,
    chosen: Sequence[SuiteProblem],
    told: Told,
    solving: Solve,
    jobs: int,
) -> SuiteOutcome:
    done = {row.id for row in record.rows}
    places = {each.id: (n, each) for n, each in enumerate(chosen, start=1)}
    interrupted = False

    def crowded() -> list[str]:
        return [row.id for row in record.rows if row.id in places and row.crowded]

    def solved(ids: Iterable[str], jobs: int) -> None:
        nonlocal record, interrupted
        before = record

        def outcome(which: str) -> Row | None:
            number, each = places[which]
            return _outcome(each, f"{number}/{len(chosen)}", before, told, solving)

        with closing(_in_turn(outcome, list(ids), jobs)) as rows:
            for row in rows:
                if row is None:
                    interrupted = True
                    if jobs == 1:
                        break
                    continue
                if row.id in done:  # an earlier try, which stands until there is another
                    record = without(record, chosen, [row.id])
                done.add(row.id)
                row = row.model_copy(update={"jobs": jobs})
                record = record.with_row(row)
                write_suite(file, record)
                told.ended(row)

    solved([each for each in places if each not in done], jobs)
    while not interrupted and (again := crowded()):
        jobs = max(1, jobs // 2)
        solved(again, jobs)
    return SuiteOutcome(record, interrupted)


def _in_turn(
    outcome: Callable[[str], Row | None], which: Sequence[str], jobs: int
) -> Generator[Row | None, None, None]:
    """Yield outcomes as they come: of one problem after another, or of several at a time."""
    if jobs == 1:
        yield from map(outcome, which)
        return
    with ThreadPoolExecutor(max_workers=jobs) as threads:
        for done in as_completed([threads.submit(outcome, each) for each in which]):
            yield done.result()


def _outcome(
    each: SuiteProblem, place: str, record: SuiteRecord, told: Told, solving: Solve
) -> Row | None:
    """Return a problem's row, whatever happens to it; None where the user interrupted it."""
    began, problem = time.monotonic(), None
    try:
        problem = each.load()
        run = _run(each, problem, place, record, told, solving)
        if run.status == "interrupted":
            return None
        state = RunFolder(run.folder).load()
        signature = state.opening.signature if state.opening else None
        seconds = time.monotonic() - began
        return row_of(each, run, signature, seconds, closest=_closest(state))
    except KeyboardInterrupt:
        return None
    except Exception as error:  # noqa: BLE001 - whatever it is, the suite goes on
        return _failed(each, problem, error, record, time.monotonic() - began)


def _closest(state: RunState) -> Measurement | None:
    """Return what the search measured of its best kernel, where no confirmation says otherwise."""
    if state.confirmed is not None or state.opening is None:
        return None
    best = History(state.evaluations, baseline=state.opening.fastest).best()
    return best.measurement if best else None


def _run(
    each: SuiteProblem,
    problem: Problem,
    place: str,
    record: SuiteRecord,
    told: Told,
    solving: Solve,
) -> Run:
    left = _left(record, problem)
    spend = left.load().spend if left else None
    budget = Budget(seconds=record.settings.seconds, trials=record.settings.trials)
    with told.begins(each, place, budget, spend) as reporter:
        return solving(problem, record.settings, Path(record.runs), left, reporter)


def _failed(
    each: SuiteProblem,
    problem: Problem | None,
    error: Exception,
    record: SuiteRecord,
    seconds: float,
) -> Row:
    said = str(error) if isinstance(error, KoptError) else f"{type(error).__name__}: {error}"
    if problem is None:
        return failed_row(each, said, seconds)
    left = _left(record, problem)
    run = left.id if left else ""
    return failed_row(each, said, seconds, problem_id=problem.id, run=run)


def _left(record: SuiteRecord, problem: Problem) -> RunFolder | None:
    """Return the newest run of a problem that no row tells of: it was killed or interrupted."""
    known = {row.run for row in record.rows} | set(record.replaced)
    for place in sorted(Path(record.runs).glob("*/run.json"), key=_written, reverse=True):
        if place.parent.name in known or place.parent.name.startswith("."):
            continue  # a name with a dot: it is just being made, by a problem beside this one
        with contextlib.suppress(RunStoreError):
            folder = RunFolder(place.parent)
            if folder.file.problem.id == problem.id:
                return folder
    return None


def _written(path: Path) -> int:
    """Return when a file was written; 0 where it is gone, as a folder that was renamed since."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
