"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kopt.config import Settings

ProblemPath = Annotated[
    Path, typer.Argument(help="A problem folder, problem.toml, or KernelBench file.")
]
KernelPath = Annotated[Path, typer.Argument(help="A kernel file: .cpp, .cu or .py.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
Backend = Annotated[str | None, typer.Option("--backend", help="Builds candidates.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="cpu or cuda.")]
Strategies = Annotated[
    list[str] | None, typer.Option("--strategy", help="Proposes candidates; repeat for more.")
]
Search = Annotated[str | None, typer.Option("--search", help="Chooses what to work on next.")]
Verifiers = Annotated[
    list[str] | None, typer.Option("--verifier", help="Judges correctness; all must pass.")
]
MaxTime = Annotated[str | None, typer.Option("--max-time", help="Time budget, as 20m or 1h30m.")]
MaxTrials = Annotated[str | None, typer.Option("--max-trials", help="Candidates at most.")]
MaxTokens = Annotated[str | None, typer.Option("--max-tokens", help="LLM tokens at most.")]
MaxUsd = Annotated[str | None, typer.Option("--max-usd", help="US dollars at most.")]
Seed = Annotated[str | None, typer.Option("--seed", help="Seed of what is drawn at random.")]
BuildWorkers = Annotated[
    str | None, typer.Option("--build-workers", help="Builds at a time; none: one per CPU.")
]
BuildTimeout = Annotated[str | None, typer.Option("--build-timeout", help="Per build, as 2m.")]
RunTimeout = Annotated[str | None, typer.Option("--run-timeout", help="Per launch, as 60s.")]
RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Folder of the run folders.")]
ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", help="Configuration file (default kopt.toml).")
]
PluginOptions = Annotated[
    list[str] | None, typer.Option("-o", "--option", help="ROLE.NAME.KEY=VALUE; repeat for more.")
]


def settings_of(
    given: dict[str, object],
    *,
    options: list[str] | None = None,
    config: Path | None = None,
    problem: Path | None = None,
) -> Settings:
    """Return the settings of a command line. Raises ConfigError."""
    from kopt.config import find_config, resolve
    from kopt.env import settings_from_environment

    return resolve(
        given, options or [], find_config(config, problem), settings_from_environment()
    )
