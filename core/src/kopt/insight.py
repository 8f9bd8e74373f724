"""Looking into one problem or one kernel: what ``kopt analyze`` and ``kopt profile`` do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.errors import ConfigError, KoptError
from kopt.hooks import Hooks
from kopt.machine import choose_device, refuse_untimeable
from kopt.model.history import History
from kopt.model.verification import Status
from kopt.peaks import measure_peaks
from kopt.plugins.catalog import installed
from kopt.reporter import Silent
from kopt.single import evaluator_and_hooks, evaluator_for
from kopt.stages.judging import Diagnoser

if TYPE_CHECKING:
    from pathlib import Path

    from kopt.config import Settings
    from kopt.evaluator import Opening
    from kopt.model.candidate import Candidate
    from kopt.model.device import Device
    from kopt.model.diagnosis import Diagnosis, Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem, Signature
    from kopt.reporter import Steps


@dataclass(frozen=True)
class Profiled:
    """A kernel, and what profilers and judges say of it."""

    device: Device
    signature: Signature
    evaluation: Evaluation
    profiles: list[Profile]
    diagnoses: list[Diagnosis]
    left_out: list[str]
    """Plugins that could not be asked, or failed, and why; the others were asked all the same."""
    complete: bool = True
    """Whether no profiler or judge failed that the settings name."""


def profile(
    problem: Problem, candidate: Candidate, settings: Settings, steps: Steps | None = None
) -> Profiled:
    """Verify and time a kernel as a search would, profile it, and have it judged.

    Without profilers or judges in the settings all that are installed are asked. The device's
    rates are measured where they never were. Nothing is profiled where the kernel is not correct.
    Raises KoptError.
    """
    device = choose_device(settings.device, [candidate.language])
    refuse_untimeable(candidate.language, device)
    roles, left_out = [], []
    for role, named in (("profiler", settings.profilers), ("judge", settings.judges)):
        usable, reasons = (list(named), []) if named else _usable(role)
        roles += [(role, name) for name in usable]
        left_out += reasons
    told = steps or Silent()
    told.opening(problem.name, device)
    with evaluator_and_hooks(problem, [candidate], device, settings, roles=roles) as (
        evaluator,
        hooks,
    ):
        opening = evaluator.open()
        told.opened(opening)
        found = with_peaks(opening.device)
        evaluation = next(iter(evaluator.evaluate([candidate])))
        told.judged(candidate.entry, str(evaluation.status), "1/1")
        if evaluation.status is not Status.CORRECT:
            return Profiled(found, opening.signature, evaluation, [], [], left_out)
        probe = evaluator.probe(candidate)
        probe.told = told.probed
        diagnoser = Diagnoser(hooks, problem, opening.signature, found, lambda _: probe)
        history = History([evaluation], baseline=opening.fastest)
        profiles = diagnoser.profiles(evaluation)
        diagnoses = diagnoser.diagnose(evaluation, history)
        left_out += [f"{f.role} {f.plugin!r} failed: {f.error}" for f in hooks.failures]
        wanted = {("profiler", name) for name in settings.profilers}
        wanted |= {("judge", name) for name in settings.judges}
        complete = not any((f.role, f.plugin) in wanted for f in hooks.failures)
        return Profiled(
            found, opening.signature, evaluation, profiles, diagnoses, left_out, complete
        )


def _installed(role: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(info.name for info in installed() if info.role == role))


def _usable(role: str) -> tuple[list[str], list[str]]:
    """Return the installed plugins of a role that load, and why others do not."""
    names, reasons = [], []
    for name in _installed(role):
        try:
            Hooks.load([(role, name, {})]).ensure_available()
        except KoptError as error:
            reasons.append(str(error))
        else:
            names.append(name)
    return names, reasons


def with_peaks(device: Device) -> Device:
    """Return a device with what was measured of it; where nothing was, measure it now."""
    if device.peaks is not None:
        return device
    return device.model_copy(update={"peaks": measure_peaks(device.kind).peaks})


@dataclass(frozen=True)
class Analyzed:
    """A problem's work, and what its baselines make of it on this device."""

    opening: Opening
    device: Device
    """With its rates."""


def analyze(problem: Problem, settings: Settings, steps: Steps | None = None) -> Analyzed:
    """Time a problem's baselines beside what its work takes at least. Raises KoptError."""
    device = choose_device(settings.device)
    told = steps or Silent()
    told.opening(problem.name, device)
    with evaluator_for(problem, [], device, settings) as evaluator:
        opening = evaluator.open()
        told.opened(opening)
    return Analyzed(opening, with_peaks(opening.device))


def read_profile(path: Path) -> Profile:
    """Return what a profiler's tool wrote to a file. Raises ConfigError, PluginError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; give a profiler's report, as FILE.ncu-rep")
    usable, reasons = _usable("profiler")
    hooks = Hooks.load([("profiler", name, {}) for name in usable])
    found = hooks.kopt_read_profile(path)
    if found is None:
        said = "; ".join([*reasons, *(f"{each.plugin}: {each.error}" for each in hooks.failures)])
        raise ConfigError(
            f"{path}: no installed profiler reads it ({said or 'it is none of their reports'}); "
            "kopt-ncu reads .ncu-rep files and ncu's CSV"
        )
    return found
