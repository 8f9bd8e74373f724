"""Options that several verbs share, and how help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from kopt.config import Settings


class Verb(TyperCommand):
    """A verb whose help names no type for an option that is only there or not."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help`` included."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of verbs; its help is as a verb's."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help`` and those for completion included."""
        return _without_types(super().get_params(ctx))


def _without_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


ProblemPath = Annotated[
    Path,
    typer.Argument(metavar="PROBLEM", help="A problem folder, problem.toml, or KernelBench file."),
]
KernelPath = Annotated[
    Path, typer.Argument(metavar="KERNEL", help="A kernel file: .cpp, .cu or .py.")
]
KernelPaths = Annotated[
    list[Path], typer.Argument(metavar="KERNEL...", help="Kernel files: .cpp, .cu or .py.")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="sm_NN",
        help="A GPU to compile for, as sm_90; repeat for more (default the one that is here).",
    ),
]
KnobValues = Annotated[
    list[str] | None,
    typer.Option(
        "--knob",
        metavar="NAME=VALUE",
        help="A knob's value instead of its default; repeat for more.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
Backend = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", help="Builds candidates.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda", help="Where candidates run.")
]
PrecisionName = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="reference|strict|tf32",
        help="Float32 arithmetic of the reference, which kernels are held to "
        "(default the problem's).",
    ),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Proposes candidates; repeat for more."),
]
Search = Annotated[
    str | None, typer.Option("--search", metavar="NAME", help="Chooses what to work on next.")
]
Verifiers = Annotated[
    list[str] | None,
    typer.Option("--verifier", metavar="NAME", help="Judges correctness; all must pass."),
]
Profilers = Annotated[
    list[str] | None,
    typer.Option(
        "--profiler",
        metavar="NAME",
        help="Measures how a kernel uses the device; repeat for more.",
    ),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge", metavar="NAME", help="Says which limit a kernel runs into; repeat for more."
    ),
]
Llm = Annotated[str | None, typer.Option("--llm", metavar="NAME", help="Language model plugin.")]
Executor = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="Evaluates candidates elsewhere.")
]
MaxTime = Annotated[
    str | None,
    typer.Option("--max-time", metavar="TIME", help="Time budget, as 20m or 1h30m (default 20m)."),
]
MaxTrials = Annotated[
    str | None, typer.Option("--max-trials", metavar="N", help="Candidates at most.")
]
MaxTokens = Annotated[
    str | None, typer.Option("--max-tokens", metavar="N", help="LLM tokens at most.")
]
MaxUsd = Annotated[str | None, typer.Option("--max-usd", metavar="USD", help="Money at most.")]
Seed = Annotated[
    str | None, typer.Option("--seed", metavar="N", help="Seed of what is drawn at random.")
]
BuildWorkers = Annotated[
    str | None,
    typer.Option("--build-workers", metavar="N", help="Builds at a time (default one per CPU)."),
]
BuildTimeout = Annotated[
    str | None, typer.Option("--build-timeout", metavar="TIME", help="Per build (default 2m).")
]
RunTimeout = Annotated[
    str | None, typer.Option("--run-timeout", metavar="TIME", help="Per launch (default 60s).")
]
RunsDir = Annotated[
    Path | None,
    typer.Option(
        "--runs-dir", metavar="FOLDER", help="Folder of the run folders (default .kopt/runs)."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="Configuration (default kopt.toml)."),
]
PluginOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="A plugin's option, as search.beam.width=4; repeat for more.",
    ),
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

    return resolve(given, options or [], find_config(config, problem), settings_from_environment())


def runs_root(runs_dir: Path | None) -> Path:
    """Return the folder of the runs: as given, or as the configuration says. Raises ConfigError."""
    return settings_of({"runs_dir": runs_dir}).runs_dir
