"""One problem without a search: what ``kopt verify`` and ``kopt measure`` do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kopt.config import Settings, run_config
from kopt.errors import CandidateError, ConfigError, ProblemError
from kopt.evaluator import Opening
from kopt.loading import load_hooks, without_idle_options
from kopt.machine import GPU_LANGUAGES, choose_device, refuse_untimeable
from kopt.model.candidate import Candidate
from kopt.model.device import Device, DeviceKind
from kopt.model.evaluation import Evaluation
from kopt.model.oracle import OracleReport
from kopt.model.problem import Problem, Signature
from kopt.model.verification import Status
from kopt.optimize import judge_settings
from kopt.reduction import interpretable, refuse_large, sizes_text
from kopt.reporter import Silent, Steps
from kopt.runs.state import state_of
from kopt.worker.client import LocalEvaluator

_TARGET = re.compile(r"sm_\d+[a-z]?")


@dataclass(frozen=True)
class Checked:
    """A verdict, and what was looked at."""

    evaluation: Evaluation
    reduced: str
    """The sizes at which it was verified, in words; empty where they are the problem's own."""


@dataclass(frozen=True)
class Compiled:
    """What compiling ahead of time for a GPU that is not here has given."""

    target: str
    kernels: list[dict[str, Any]]
    """Resources of each kernel."""
    fault: str = ""
    """Why it does not compile or does not fit."""


@dataclass(frozen=True)
class Bench:
    """A problem whose baselines are timed, ready for kernels."""

    opening: Opening
    measure: Callable[[Candidate], Evaluation]
    """Build, verify and time beside every baseline, in a fresh process."""


def verify(
    problem: Problem, candidate: Candidate, settings: Settings, steps: Steps | None = None
) -> Checked:
    """Build and verify at a winner's depth. Nothing is timed. Raises KoptError.

    A GPU's language on the CPU is interpreted: then at reduced sizes.
    """
    device = choose_device(settings.device, [candidate.language])
    interpreted = device == "cpu" and candidate.language in GPU_LANGUAGES
    judged = interpretable(problem) if interpreted else problem
    reduced = "" if judged is problem else sizes_text(judged)
    (steps or Silent()).preparing(f"{problem.name} {reduced}".strip(), device)
    with evaluator_for(judged, [candidate], device, settings) as evaluator:
        try:
            _, signature = evaluator.prepare()
        except ProblemError as error:
            raise _explained(error, reduced) from error
        if interpreted:
            refuse_large(judged, signature)
        return Checked(evaluator.verify(candidate), reduced)


def _explained(error: ProblemError, reduced: str) -> ProblemError:
    if not reduced:
        return error
    return ProblemError(
        f"{error}; that was at the reduced sizes {reduced}, where Triton's interpreter is used: "
        "add a small [[workloads]] table with role = 'check', and it is used instead"
    )


def lint(problem: Problem, settings: Settings, steps: Steps | None = None) -> OracleReport:
    """Say which known-wrong results this problem cannot tell from right ones. Raises KoptError."""
    device = choose_device(settings.device)
    (steps or Silent()).preparing(problem.name, device)
    with evaluator_for(problem, [], device, settings) as evaluator:
        found, signature = evaluator.prepare()
        return _with_memory(evaluator.test_oracle(), found, signature)


def _with_memory(report: OracleReport, device: Device, signature: Signature) -> OracleReport:
    """Return a report that also says how much memory the problem takes."""
    most = max(workload.memory_bytes for workload in signature.workloads.values())
    if not most:
        return report
    said = (
        f"memory: judging takes at least {most / 1e9:.2g} GB of the {device.memory_bytes / 1e9:.3g} "
        f"GB that {device.name} has"
    )
    return report.model_copy(update={"notes": (*report.notes, said)})


def compile_ahead(
    problem: Problem,
    candidate: Candidate,
    settings: Settings,
    target: str,
    steps: Steps | None = None,
) -> Compiled:
    """Compile for a GPU at the problem's own sizes, without having that GPU.

    Raises ConfigError where there is no such target, or the kernel's language has none.
    """
    if not _TARGET.fullmatch(target):
        raise ConfigError(f"--target: {target!r} is no GPU architecture; write it as sm_90")
    if candidate.language not in GPU_LANGUAGES:
        raise ConfigError(
            f"--target {target}: this kernel is {candidate.language}, which is not compiled for a "
            "GPU; leave --target out"
        )
    (steps or Silent()).preparing(f"{problem.name} for {target}", "cpu")
    with evaluator_for(problem, [candidate], "cpu", settings, architecture=target) as evaluator:
        evaluator.prepare()
        try:
            return Compiled(target, evaluator.ahead(candidate))
        except CandidateError as error:
            if error.status is Status.UNSUPPORTED:
                raise ConfigError(f"--target {target}: {error.detail}") from error
            return Compiled(target, [], fault=f"{error.status}: {error.detail}")


@contextmanager
def open_bench(
    problem: Problem,
    candidates: Sequence[Candidate],
    settings: Settings,
    steps: Steps | None = None,
) -> Iterator[Bench]:
    """Open a problem for timing: one judge, and one set of baselines, for every kernel.

    Raises KoptError; DeviceError where a kernel's language needs a GPU and none is here.
    """
    device = choose_device(settings.device, [candidate.language for candidate in candidates])
    for candidate in candidates:
        refuse_untimeable(candidate.language, device)
    told = steps or Silent()
    told.opening(problem.name, device)
    with evaluator_for(problem, candidates, device, settings) as evaluator:
        opening = evaluator.open()
        told.opened(opening)
        yield Bench(opening, evaluator.confirm)


@contextmanager
def evaluator_for(
    problem: Problem,
    candidates: Sequence[Candidate],
    device: DeviceKind,
    settings: Settings,
    *,
    architecture: str = "native",
) -> Iterator[LocalEvaluator]:
    """Give a judge with the backends of the candidates' languages; it ends with the context."""
    languages = dict.fromkeys(candidate.language for candidate in candidates)
    backends = [settings.backend] if settings.backend and candidates else list(languages)
    config = run_config(settings, device, backends[0] if backends else "torch")
    named = [
        *(("backend", name) for name in dict.fromkeys((config.reference, *backends))),
        *(("verifier", name) for name in config.verifiers),
    ]
    hooks = load_hooks(without_idle_options(config, settings.origins, named), named)
    hooks.ensure_available()
    state = state_of(problem, config, [])
    evaluator = LocalEvaluator(judge_settings(config, hooks, state, architecture=architecture))
    try:
        yield evaluator
    finally:
        evaluator.close()
