"""``kopt config show``: every setting, and where its value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    BuildTimeout,
    BuildWorkers,
    ConfigFile,
    DeviceName,
    Executor,
    Group,
    Judges,
    Llm,
    MaxTime,
    MaxTokens,
    MaxTrials,
    MaxUsd,
    PluginOptions,
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

group = typer.Typer(cls=Group, help="Look at the configuration.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(group, name="config")


@group.command("show", cls=Verb)
def show(
    problem: Annotated[
        Path | None,
        typer.Option("--problem", metavar="FOLDER", help="Also read this problem's kopt.toml."),
    ] = None,
    backend: Backend = None,
    strategy: Strategies = None,
    search: Search = None,
    verifier: Verifiers = None,
    profiler: Profilers = None,
    judge: Judges = None,
    llm: Llm = None,
    executor: Executor = None,
    device: DeviceName = None,
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
    """Show each setting's value and its origin: default, file, environment or command line.

    It takes the options of kopt optimize, and shows what they would do.
    """
    from kopt.cli.config import show_config

    given: dict[str, object] = {
        "backend": backend, "strategies": strategy, "search": search, "verifiers": verifier,
        "profilers": profiler, "judges": judge, "llm": llm, "executor": executor, "device": device,
        "max_time": max_time, "max_trials": max_trials, "max_tokens": max_tokens,
        "max_usd": max_usd, "seed": seed, "build_workers": build_workers,
        "build_timeout": build_timeout, "run_timeout": run_timeout, "runs_dir": runs_dir,
    }  # fmt: skip
    settings = settings_of(given, options=option, config=config, problem=problem)
    return show_config(settings, as_json)
