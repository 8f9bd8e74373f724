"""Running the cases: one judge per group of kernels, several groups side by side."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kopt.config import Settings
from kopt.errors import ConfigError
from kopt.machine import choose_device
from kopt.model.kernel_file import load_kernel
from kopt.optimize import load_problem
from kopt.reporter import Silent
from kopt.selftest.cases import FIXTURES, Case, Finding
from kopt.single import evaluator_for, open_bench

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem
    from kopt.reporter import Steps
    from kopt.settings import DeviceChoice

HANG_SECONDS = 10.0
"""Deadline of one launch of a kernel that is meant to hang: what it costs."""
RUN_SECONDS = 60.0
"""Deadline of one launch of the others, whose first one may compile and tune, and of one block."""
_CHUNK = 5
"""Kernels that one judge verifies at most, so that several judges have work."""
_MOST_JOBS = 8
_CPUS_OF_A_JOB = 2


def selected(cases: Iterable[Case], device: DeviceChoice | None) -> list[Case]:
    """Return the cases of a device: C++ on the CPU, Triton on a GPU, PyTorch on both.

    Raises KoptError where a GPU is asked for and none is here.
    """
    on_gpu = device is not None and choose_device(device) == "cuda"
    return [case for case in cases if case.device in ("any", "gpu" if on_gpu else "cpu")]


def default_jobs() -> int:
    """Return how many judges verify at a time."""
    return max(1, min(_MOST_JOBS, (os.cpu_count() or 1) // _CPUS_OF_A_JOB))


def run(
    cases: Sequence[Case],
    device: DeviceChoice | None = None,
    steps: Steps | None = None,
    *,
    jobs: int | None = None,
) -> Iterator[Finding]:
    """Judge every case and yield what was found, as it is found. Raises KoptError.

    :param jobs: judges that verify side by side; what is timed has the machine for itself.

    No configuration counts: the verifiers and their bounds are kopt's defaults.
    """
    told, kind, most = steps or Silent(), device or "cpu", jobs or default_jobs()
    with _problems(cases) as problems:
        groups = _groups(cases, problems, _CHUNK if most > 1 else len(cases))
        found = chain(
            _side_by_side([group for group in groups if not group.timed], kind, told, most),
            *(_measured(group, kind, told) for group in groups if group.timed),
        )
        for number, finding in enumerate(found, start=1):
            told.judged(finding.case.name, str(finding.outcome), f"{number}/{len(cases)}")
            yield finding


@contextmanager
def _problems(cases: Iterable[Case]) -> Iterator[dict[str, Problem]]:
    """Open every problem from a copy of its files, which lie there until all cases are judged.

    A case writes to them. All are read before the first kernel runs, as in any other run of kopt's.
    Raises KoptError.
    """
    with TemporaryDirectory(prefix="kopt-selftest-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "problems"
        shutil.copytree(FIXTURES / "problems", copy)
        yield {name: load_problem(copy / name) for name in {case.problem for case in cases}}


@dataclass(frozen=True)
class _Group:
    """Kernels of one problem under one judge."""

    problem: Problem
    timed: bool
    hangs: bool
    cases: tuple[Case, ...]

    def settings(self, device: DeviceChoice) -> Settings:
        return Settings(
            device=device,
            run_timeout=HANG_SECONDS if self.hangs else RUN_SECONDS,
            options={"backend.torch": {"compile": False}},
        )


def _groups(cases: Sequence[Case], problems: dict[str, Problem], most: int) -> list[_Group]:
    """Return the cases by problem, kind and deadline; of those that are not timed ``most`` each.

    Those are of one language too: its processes are forked from one that has imported what it takes.
    """
    alike: dict[tuple[str, bool, bool, str], list[Case]] = {}
    for case in cases:
        language = "" if case.timed else _candidate(case).language
        alike.setdefault((case.problem, case.timed, case.hangs, language), []).append(case)
    groups = []
    for (name, timed, hangs, _), found in alike.items():
        step = len(found) if timed else most
        for at in range(0, len(found), step):
            groups.append(_Group(problems[name], timed, hangs, tuple(found[at : at + step])))
    return groups


_Event = Finding | str | None
"""What a thread tells of its group: what was found, what is about to be opened, or that it ended."""


def _side_by_side(
    groups: Sequence[_Group], device: DeviceChoice, steps: Steps, jobs: int
) -> Iterator[Finding]:
    """Yield the findings of all groups; ``steps`` is told in the caller's thread alone.

    What a group raises is raised here, once the groups that have begun are at an end.
    """
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    stopped = threading.Event()

    def work(group: _Group) -> None:
        try:
            for event in _verified(group, device):
                if stopped.is_set():
                    return
                events.put(event)
        except BaseException:
            stopped.set()
            raise
        finally:
            events.put(None)

    # A judge ends with the thread that started it, so each thread sees its groups to their end.
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, group) for group in groups]
        try:
            yield from _told(events, len(groups), device, steps)
        finally:
            stopped.set()
    for future in futures:
        future.result()


def _told(
    events: queue.SimpleQueue[_Event], groups: int, device: DeviceChoice, steps: Steps
) -> Iterator[Finding]:
    while groups:
        match events.get():
            case None:
                groups -= 1
            case Finding() as finding:
                yield finding
            case opened:
                steps.preparing(opened, device)


def _verified(group: _Group, device: DeviceChoice) -> Iterator[str | Finding]:
    """Yield what is about to be opened, then each finding."""
    problem, candidates = group.problem, [_candidate(case) for case in group.cases]
    yield f"{problem.name}, {len(candidates)} kernel{'s' if len(candidates) != 1 else ''}"
    with evaluator_for(problem, candidates, device, group.settings(device)) as evaluator:
        evaluator.prepare()
        yield from _found(group.cases, candidates, evaluator.verify)


def _measured(group: _Group, device: DeviceChoice, steps: Steps) -> Iterator[Finding]:
    candidates = [_candidate(case) for case in group.cases]
    with open_bench(group.problem, candidates, group.settings(device), steps) as bench:
        yield from _found(group.cases, candidates, bench.measure)


def _found(
    cases: Sequence[Case], candidates: Sequence[Candidate], judge: Callable[[Candidate], Evaluation]
) -> Iterator[Finding]:
    for case, candidate in zip(cases, candidates, strict=True):
        evaluation = judge(candidate)
        yield Finding(
            case=case, outcome=evaluation.status, detail=evaluation.detail,
            seconds=evaluation.seconds,
        )  # fmt: skip


def _candidate(case: Case) -> Candidate:
    path = FIXTURES / "kernels" / case.kernel
    if not path.is_file():
        raise ConfigError(
            f"{path}: a kernel of the selftest is missing; install kopt again, as its folder is damaged"
        )
    return load_kernel(path)
