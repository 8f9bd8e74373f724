"""``kopt.optimize``: from names or objects to a finished run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kopt.config import Settings, resolve, run_config
from kopt.env import made_cache_folder, settings_from_environment
from kopt.errors import (
    ConfigError,
    KoptError,
    PluginConflictError,
    PluginIncompatibleError,
    PluginInterfaceError,
    PluginLoadError,
    PluginUnavailableError,
    ProblemError,
    RunStoreError,
    UnknownPluginError,
)
from kopt.hooks import Hooks
from kopt.loading import (
    load_hooks,
    named_plugins,
    refuse_unmetered,
    without_idle_options,
)
from kopt.machine import (
    candidate_memory_limit,
    choose_device,
    refuse_untimeable,
    usable_cpus,
)
from kopt.model.budget import Budget
from kopt.model.device import DeviceKind
from kopt.model.problem import PRECISIONS, Problem
from kopt.model.run import Run, RunConfig
from kopt.plugins.catalog import installed
from kopt.reporter import Reporter
from kopt.runs.state import RunState
from kopt.runs.store import RunFolder
from kopt.session import Session
from kopt.worker.client import LocalEvaluator
from kopt.worker.device_lock import default_locks
from kopt.worker.settings import JudgeSettings

_PREFERRED = {"cuda": ("triton", "cuda"), "cpu": ("cpp",)}
_REFERENCE = "torch"

Named = str | object
"""A plugin's name, or an instance of it."""


def optimize(
    problem: Problem | str | Path | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    mutates: Sequence[str] = (),
    backend: str | None = None,
    strategies: Sequence[Named] | None = None,
    search: Named | None = None,
    verifiers: Sequence[str] | None = None,
    profilers: Sequence[Named] | None = None,
    judges: Sequence[Named] | None = None,
    llm: Named | None = None,
    device: DeviceKind | None = None,
    precision: str | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    confirm: Literal["best", "faster"] = "best",
    runs_dir: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Run:
    """Search for a faster kernel and return the finished run.

    :param problem: a problem, the path of one, or a function of tensors (then ``inputs`` gives one
        example of each argument, in order or by name).
    :param mutates: names of the tensors that such a function changes in place.
    :param precision: ``reference``, ``strict`` or ``tf32`` in place of the problem's own: which
        float32 arithmetic the reference uses, and so how accurate a kernel has to be.
    :param options: ``"role.name"`` to plugin options, as ``{"search.beam": {"width": 2}}``.
    :param confirm: ``faster`` leaves a best kernel that the search saw slower than a baseline
        unconfirmed: it cannot win, and ``best`` of the run is None then.
    Raises KoptError for wrong input; a candidate's failure is part of the run.
    """
    instances = _instances(strategies, search, profilers, judges, llm)
    given = {
        "backend": backend, "strategies": _names(strategies), "verifiers": verifiers,
        "search": search if isinstance(search, str) else None,
        "profilers": _names(profilers), "judges": _names(judges),
        "llm": llm if isinstance(llm, str) else None, "device": device, "seed": seed,
        "runs_dir": Path(runs_dir) if runs_dir else None,
    }  # fmt: skip
    settings = resolve(given, (), None, settings_from_environment())
    tables = {name: dict(table) for name, table in (options or {}).items()}
    update: dict[str, Any] = {"options": {**settings.options, **tables}}
    if strategies is not None and not given["strategies"]:
        update["strategies"] = ()
    if search is not None and not isinstance(search, str):
        update["search"] = "instance"
    settings = settings.model_copy(update=update)
    chosen = with_precision(as_problem(problem, inputs, mutates), precision)
    return start(
        chosen, settings, budget=budget, instances=instances, reporter=reporter, confirm=confirm
    )


def as_problem(
    problem: Problem | str | Path | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    mutates: Sequence[str] = (),
) -> Problem:
    """Return the problem that a path, a function with example inputs, or a problem means."""
    if mutates and isinstance(problem, Problem | str | Path):
        raise ProblemError("mutates is for a function; a problem says itself what it changes")
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, str | Path):
        return load_problem(problem)
    if not callable(problem):
        raise ProblemError(
            f"{problem!r} is no problem: give the path of one, a kopt.Problem, or a function with "
            "inputs"
        )
    if inputs is None:
        raise ProblemError(
            "kopt.optimize(function) needs inputs: one example of each argument, as "
            "inputs=[x, weight] or inputs={'x': x, 'weight': weight}"
        )
    from kopt.formats.pickled import problem_from_function

    return problem_from_function(problem, inputs, mutates=mutates)


def with_precision(problem: Problem, precision: str | None) -> Problem:
    """Return a problem whose reference uses another float32 arithmetic; None: its own.

    Raises ProblemError for a name that is none.
    """
    if precision is None:
        return problem
    if precision not in PRECISIONS:
        raise ProblemError(f"precision {precision!r}: must be one of {', '.join(PRECISIONS)}")
    tolerance = problem.tolerance.model_copy(update={"precision": precision})
    return problem.model_copy(update={"tolerance": tolerance})


def load_problem(path: str | Path, precision: str | None = None) -> Problem:
    """Read a problem file or folder with every installed format. Raises ProblemError.

    ``precision``: see ``with_precision``.
    """
    place = Path(path)
    if not place.exists():
        raise ProblemError(f"{place}: no such file or folder; `kopt init FILE:FUNCTION` makes one")
    problem = known_problem(place)
    if problem is None:
        names = ", ".join(info.name for info in installed("format"))
        raise ProblemError(
            f"{place}: no installed format knows it (asked: {names}); a native problem is a folder "
            "with problem.toml, a KernelBench file has Model, get_inputs and get_init_inputs; from "
            f"a function, `kopt init {place.name if place.suffix == '.py' else 'FILE'}:FUNCTION` "
            "makes a problem"
        )
    return with_precision(problem, precision)


def known_problem(place: Path) -> Problem | None:
    """Read a problem as load_problem does; None where no installed format knows what is there."""
    hooks = Hooks.load([("format", info.reference, {}) for info in installed("format")])
    return hooks.kopt_load_problem(place)


def choose_backend(asked: str | None, device: DeviceKind) -> str:
    """Return the backend of a run: what was asked for, or the best installed for the device."""
    if asked is not None:
        return asked
    names = {info.name for info in installed("backend")}
    for name in _PREFERRED[device]:
        if name in names:
            return name
    wanted = " or ".join(f"kopt-{name}" for name in _PREFERRED[device])
    raise UnknownPluginError(
        f"no backend for device {device!r} is installed; try: pip install {wanted}"
    )


def backends_beside(settings: Settings, device: DeviceKind, chosen: str) -> tuple[str, ...]:
    """Return further backends for a run whose backend nobody named: those that work here."""
    if settings.backend is not None:
        return ()
    names = {info.name for info in installed("backend")} - {chosen}
    return tuple(
        name for name in _PREFERRED[device] if name in names and _works(name, settings.options)
    )


def _works(backend: str, options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether nothing is amiss with it; wrong options are the user's mistake, and raised."""
    try:
        hooks = Hooks.load([("backend", backend, options.get(f"backend.{backend}", {}))])
    except (
        PluginConflictError,
        PluginIncompatibleError,
        PluginInterfaceError,
        PluginLoadError,
        PluginUnavailableError,
    ):
        return False
    return all(check.state == "ok" for check in hooks.kopt_check())


def start(
    problem: Problem,
    settings: Settings,
    *,
    budget: Budget | None = None,
    instances: Sequence[tuple[str, object]] = (),
    reporter: Reporter | None = None,
    confirm: Literal["best", "faster"] = "best",
) -> Run:
    """Make a new run of a problem and see it through. Raises KoptError, then leaves no run."""
    asked = [_language(settings.backend)] if settings.backend else []
    device = choose_device(settings.device, asked)
    backend = choose_backend(settings.backend, device)
    refuse_untimeable(_language(backend), device)
    config = run_config(settings, device, backend, backends_beside(settings, device, backend))
    config = without_idle_options(config, settings.origins, named_plugins(config))
    config = config.model_copy(update={"confirm": confirm, "budget": budget or config.budget})
    hooks = load_hooks(config, named_plugins(config), instances)
    hooks.ensure_available()
    refuse_unmetered(hooks, config.budget)
    folder = RunFolder.create(settings.runs_dir, problem, config, hooks.sources())
    try:
        return proceed(folder, hooks, reporter)
    except KoptError:
        _discard_unopened(folder)
        raise


def _language(backend: str) -> str:
    """Return the language that a backend builds, which is its name."""
    return backend.rpartition(":")[2]


def _discard_unopened(folder: RunFolder) -> None:
    """Remove a run that failed before anything was found out: there is nothing to go on with."""
    with contextlib.suppress(KoptError):
        if folder.load().opening is None:
            shutil.rmtree(folder.path, ignore_errors=True)


def resume(folder: RunFolder, reporter: Reporter | None = None) -> Run:
    """Go on with an interrupted run. Raises RunStoreError where it has ended or moved."""
    ended = folder.load().finished
    if ended is not None and ended.status != "interrupted":
        raise RunStoreError(
            f"run {folder.id} has ended ({ended.status}: {ended.reason}); kopt show {folder.id} "
            "shows it, and kopt optimize starts another"
        )
    config = folder.file.config
    if "instance" in (config.search, *config.strategies):
        raise ConfigError(
            "this run used plugin instances from a program; resume it from that program"
        )
    choose_device(config.device)
    hooks = load_hooks(config, named_plugins(config))
    hooks.ensure_available()
    refuse_unmetered(hooks, config.budget)
    return proceed(folder, hooks, reporter)


def proceed(folder: RunFolder, hooks: Hooks, reporter: Reporter | None = None) -> Run:
    """Run a folder's session from the state that its journal tells."""
    config = folder.file.config
    with folder.writing() as journal:
        state = folder.load()
        evaluator = hooks.kopt_submit(state.problem, config.device) or LocalEvaluator(
            judge_settings(config, hooks, state)
        )
        try:
            session = Session(folder, journal, hooks, evaluator, reporter=reporter)
            return session.run()
        finally:
            evaluator.close()


def judge_settings(
    config: RunConfig, hooks: Hooks, state: RunState, architecture: str = "native"
) -> JudgeSettings:
    """Return what the judge process of a run is started with."""
    backends = hooks.references("backend")
    reference = [ref for ref in backends if ref[1].rpartition(":")[2] == config.reference]
    if not reference:
        raise PluginUnavailableError(f"the reference backend {config.reference!r} is not loaded")
    return JudgeSettings(
        problem=state.problem, device=config.device, architecture=architecture,
        judge_plugins=(*reference, *hooks.references("verifier")),
        candidate_plugins=tuple(backends), language=_language(config.backend), cache=made_cache_folder() / "builds",
        locks=default_locks(), build_workers=config.build_workers or usable_cpus(),
        build_seconds=config.build_seconds, run_seconds=config.run_seconds, seed=config.seed,
        fastest=state.opening.fastest if state.opening else None,
        memory_limit=candidate_memory_limit(config.device),
    )  # fmt: skip


def _names(given: Sequence[Named] | None) -> list[str] | None:
    return None if given is None else [item for item in given if isinstance(item, str)]


def _instances(
    strategies: Sequence[Named] | None,
    search: Named | None,
    profilers: Sequence[Named] | None,
    judges: Sequence[Named] | None,
    llm: Named | None,
) -> list[tuple[str, object]]:
    groups: list[tuple[str, Sequence[Named]]] = [
        ("strategy", strategies or ()), ("search", () if search is None else (search,)),
        ("profiler", profilers or ()), ("judge", judges or ()),
        ("llm", () if llm is None else (llm,)),
    ]  # fmt: skip
    return [(role, item) for role, items in groups for item in items if not isinstance(item, str)]
