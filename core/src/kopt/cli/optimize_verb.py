"""``kopt optimize``: search for a faster kernel."""

from __future__ import annotations

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    BuildTimeout,
    BuildWorkers,
    ConfigFile,
    DeviceName,
    Executor,
    Judges,
    Llm,
    MaxTime,
    MaxTokens,
    MaxTrials,
    MaxUsd,
    PluginOptions,
    PrecisionName,
    ProblemPath,
    Profilers,
    RunsDir,
    RunTimeout,
    Search,
    Seed,
    Strategies,
    Verb,
    Verifiers,
    settings_of,
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("optimize", cls=Verb)(optimize)


def optimize(
    problem: ProblemPath,
    backend: Backend = None,
    strategy: Strategies = None,
    search: Search = None,
    verifier: Verifiers = None,
    profiler: Profilers = None,
    judge: Judges = None,
    llm: Llm = None,
    executor: Executor = None,
    device: DeviceName = None,
    precision: PrecisionName = None,
    max_time: MaxTime = None,
    max_trials: MaxTrials = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    seed: Seed = None,
    build_workers: BuildWorkers = None,
    build_timeout: BuildTimeout = None,
    run_timeout: RunTimeout = None,
    runs_dir: RunsDir = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Search for a verified, faster kernel.

    Examples:
    kopt optimize examples/rms_norm
    kopt optimize 36_RMSNorm_.py --backend triton --max-time 5m --json
    """
    given: dict[str, object] = {
        "backend": backend, "strategies": strategy, "search": search, "verifiers": verifier,
        "profilers": profiler, "judges": judge, "llm": llm, "executor": executor, "device": device,
        "max_time": max_time, "max_trials": max_trials,
        "max_tokens": max_tokens, "max_usd": max_usd, "seed": seed,
        "build_workers": build_workers, "build_timeout": build_timeout,
        "run_timeout": run_timeout, "runs_dir": runs_dir,
    }  # fmt: skip
    settings = settings_of(given, options=option, config=config, problem=problem)
    from kopt.cli.finishing import show_run
    from kopt.cli.progress import ProgressReporter
    from kopt.model.budget import Budget
    from kopt.optimize import load_problem, start

    with ProgressReporter(Budget(seconds=settings.max_time)) as reporter:
        run = start(load_problem(problem, precision), settings, reporter=reporter)
    return show_run(run, as_json=as_json)
