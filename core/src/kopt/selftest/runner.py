"""Running the cases: one judge per problem serves all of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    from kopt.reporter import Steps
    from kopt.settings import DeviceChoice

RUN_SECONDS = 10.0
"""Deadline of one launch: what a kernel that hangs costs."""


def selected(cases: Iterable[Case], device: DeviceChoice | None) -> list[Case]:
    """Return the cases for a device: C++ runs on the CPU only. Raises KoptError without a GPU."""
    on_gpu = device is not None and choose_device(device) == "cuda"
    return [case for case in cases if not (on_gpu and case.device == "cpu")]


def run(
    cases: Sequence[Case], device: DeviceChoice | None = None, steps: Steps | None = None
) -> Iterator[Finding]:
    """Judge every case and yield what was found, problem by problem. Raises KoptError.

    No configuration counts: the verifiers and their bounds are kopt's defaults.
    """
    told = steps or Silent()
    own = Settings(
        device=device or "cpu",
        run_timeout=RUN_SECONDS,
        options={"backend.torch": {"compile": False}},
    )
    groups: dict[tuple[str, bool], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.problem, case.timed), []).append(case)
    for (problem, timed), group in groups.items():
        yield from (_measured if timed else _verified)(problem, group, own, told)


def _verified(
    name: str, cases: Sequence[Case], settings: Settings, steps: Steps
) -> Iterator[Finding]:
    problem = load_problem(FIXTURES / "problems" / name)
    candidates = [_candidate(case) for case in cases]
    device = choose_device(settings.device, [candidate.language for candidate in candidates])
    count = f"{len(cases)} kernel{'s' if len(cases) != 1 else ''}"
    steps.preparing(f"{name}, {count}", device)
    with evaluator_for(problem, candidates, device, settings) as evaluator:
        evaluator.prepare()
        yield from _found(cases, candidates, evaluator.verify)


def _measured(
    name: str, cases: Sequence[Case], settings: Settings, steps: Steps
) -> Iterator[Finding]:
    problem = load_problem(FIXTURES / "problems" / name)
    candidates = [_candidate(case) for case in cases]
    with open_bench(problem, candidates, settings, steps) as bench:
        yield from _found(cases, candidates, bench.measure)


def _found(
    cases: Sequence[Case], candidates: Sequence[Candidate], judge: Callable[[Candidate], Evaluation]
) -> Iterator[Finding]:
    for case, candidate in zip(cases, candidates, strict=True):
        evaluation = judge(candidate)
        yield Finding(case=case, outcome=evaluation.status, detail=evaluation.detail)


def _candidate(case: Case) -> Candidate:
    path = FIXTURES / "kernels" / case.kernel
    if not path.is_file():
        raise ConfigError(
            f"{path}: a kernel of the selftest is missing; install kopt again, as its folder is damaged"
        )
    return load_kernel(path)
