"""``kopt config show``: every setting, and where its value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kopt.cli.options import (
    AsJson, Backend, ConfigFile, DeviceName, MaxTime, MaxTrials, PluginOptions, Search, Strategies,
    settings_of,
)  # fmt: skip

group = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(group, name="config")


@group.command("show")
def show(
    problem: Annotated[
        Path | None, typer.Option("--problem", help="Also read this problem folder's kopt.toml.")
    ] = None,
    backend: Backend = None,
    strategy: Strategies = None,
    search: Search = None,
    device: DeviceName = None,
    max_time: MaxTime = None,
    max_trials: MaxTrials = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Show each setting's value and its origin: default, file, environment or command line."""
    from kopt.cli.config import show_config

    given: dict[str, object] = {
        "backend": backend, "strategies": strategy, "search": search, "device": device,
        "max_time": max_time, "max_trials": max_trials,
    }  # fmt: skip
    settings = settings_of(given, options=option, config=config, problem=problem)
    return show_config(settings, as_json)
