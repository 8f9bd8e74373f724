"""One problem without a search: what ``kopt verify`` and ``kopt measure`` do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kopt.config import Settings, run_config
from kopt.errors import ConfigError, ProblemError
from kopt.evaluator import Compiled, Opening
from kopt.hooks import Hooks
from kopt.loading import load_hooks, without_idle_options
from kopt.machine import GPU_LANGUAGES, choose_device, gpu_capability, refuse_untimeable
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
from kopt.stages.proposing import tunable
from kopt.worker.client import LocalEvaluator

_TARGET = re.compile(r"sm_\d+[a-z]?")
_NOT_INTERPRETED = frozenset({"cuda"})
_NO_GPU = (
    "cuda kernels run on an NVIDIA GPU only, so nothing was verified; verify it on a machine that "
    "has one"
)


@dataclass(frozen=True)
class Checked:
    """A verdict, and what was looked at."""

    evaluation: Evaluation
    reduced: str
    """The sizes at which it was verified, in words; empty where they are the problem's own."""


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

    A GPU's language on the CPU is interpreted, then at reduced sizes; where it has no interpreter
    the kernel is unsupported.
    """
    device = choose_device(settings.device, [candidate.language])
    interpreted = device == "cpu" and candidate.language in GPU_LANGUAGES
    if interpreted and candidate.language in _NOT_INTERPRETED:
        return Checked(
            Evaluation(candidate=candidate, status=Status.UNSUPPORTED, detail=_NO_GPU), ""
        )
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


def with_tunables(candidate: Candidate, settings: Settings) -> Candidate:
    """Return a kernel that declares no knobs with those that its backend finds in it.

    Raises KoptError.
    """
    if candidate.knobs:
        return candidate
    backend = settings.backend or candidate.language
    config, named = run_config(settings, "cpu", backend), [("backend", backend)]
    hooks = load_hooks(without_idle_options(config, settings.origins, named), named)
    return tunable(hooks, candidate)


def build(
    problem: Problem,
    candidate: Candidate,
    settings: Settings,
    targets: Sequence[str] = (),
    listing: str | None = None,
    steps: Steps | None = None,
) -> list[Compiled]:
    """Build for each target at the sizes of the problem's first workload, and run nothing.

    Without a target: for the GPU that is here, or for this machine's CPU, as the language is.
    ``listing``: of which kind, as ``ptx``. Raises ConfigError where a target is none, or where the
    kernel's language has no such listing, or no target of the kind.
    """
    chosen = list(dict.fromkeys(targets)) or [_target_here(candidate)]
    for target in chosen:
        _check_target(target, candidate)
    (steps or Silent()).preparing(f"{problem.name} for {', '.join(chosen)}", "cpu")
    with evaluator_for(problem, [candidate], "cpu", settings) as evaluator:
        evaluator.prepare()
        found = [evaluator.compiled(candidate, target, listing) for target in chosen]
    if all(each.status is Status.UNSUPPORTED for each in found):
        raise ConfigError(f"target {chosen[0]}: {found[0].fault}")
    return found


def _target_here(candidate: Candidate) -> str:
    """Return what a kernel is built for where nothing is said. Raises ConfigError."""
    if candidate.language not in GPU_LANGUAGES:
        return "native"
    capability = gpu_capability()
    if capability is None:
        raise ConfigError(
            f"no GPU is here to build a {candidate.language} kernel for; name one with --target, as "
            "--target sm_90"
        )
    return f"sm_{capability.replace('.', '')}"


def _check_target(target: str, candidate: Candidate) -> None:
    if target == "native" and candidate.language not in GPU_LANGUAGES:
        return
    if not _TARGET.fullmatch(target):
        raise ConfigError(f"--target: {target!r} is no GPU architecture; write it as sm_90")
    if candidate.language not in GPU_LANGUAGES:
        raise ConfigError(
            f"--target {target}: this kernel is {candidate.language}, which is not compiled for a "
            "GPU; leave --target out"
        )


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
) -> Iterator[LocalEvaluator]:
    """Give a judge with the backends of the candidates' languages; it ends with the context."""
    with evaluator_and_hooks(problem, candidates, device, settings) as (evaluator, _):
        yield evaluator


@contextmanager
def evaluator_and_hooks(
    problem: Problem,
    candidates: Sequence[Candidate],
    device: DeviceKind,
    settings: Settings,
    *,
    roles: Sequence[tuple[str, str]] = (),
) -> Iterator[tuple[LocalEvaluator, Hooks]]:
    """The same, with the hooks of its plugins and of ``roles``: more of them, as (role, name)."""
    languages = dict.fromkeys(candidate.language for candidate in candidates)
    backends = [settings.backend] if settings.backend and candidates else list(languages)
    config = run_config(settings, device, backends[0] if backends else "torch")
    named = [
        *(("backend", name) for name in dict.fromkeys((config.reference, *backends))),
        *(("verifier", name) for name in config.verifiers),
        *roles,
    ]
    hooks = load_hooks(without_idle_options(config, settings.origins, named), named)
    hooks.ensure_available()
    state = state_of(problem, config, [])
    evaluator = LocalEvaluator(judge_settings(config, hooks, state))
    try:
        yield evaluator, hooks
    finally:
        evaluator.close()
