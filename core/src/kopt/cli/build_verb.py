"""``kopt build``: compile one kernel for named targets, and show what it uses and what it became."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    KernelPath,
    KnobValues,
    PluginOptions,
    ProblemPath,
    Targets,
    Verb,
    settings_of,
)
from kopt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.evaluator import Compiled
    from kopt.model.candidate import Candidate


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("build", cls=Verb)(build)


def build(
    problem: ProblemPath,
    kernel: KernelPath,
    target: Targets = None,
    dump: Annotated[
        str | None,
        typer.Option(
            "--dump", metavar="ptx|sass|asm", help="Print this listing; the table to stderr then."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the listing to this file instead."),
    ] = None,
    knob: KnobValues = None,
    backend: Backend = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Compile a kernel at the problem's own sizes and show the registers and memory it takes.

    Nothing of the kernel runs, and no GPU is needed.
    """
    if output is not None and dump is None:
        raise ConfigError("--output is where a listing goes, and none is wanted; add --dump ptx")
    settings = settings_of({"backend": backend}, options=option, config=config, problem=problem)
    from kopt import single
    from kopt.cli.build_progress import BuildProgress
    from kopt.cli.listing import put_aside, show_listings
    from kopt.cli.output import print_json
    from kopt.cli.resource_table import print_resources
    from kopt.model.kernel_file import load_kernel
    from kopt.optimize import load_problem

    loaded = load_problem(problem)
    candidate = load_kernel(kernel)
    if knob:
        candidate = with_knobs(single.with_tunables(candidate, settings), knob)
    with BuildProgress() as steps:
        built = single.build(loaded, candidate, settings, target or [], dump, steps)
    if output is not None:
        show_listings(built, dump, output)
    if as_json:
        print_json(_as_json(candidate, loaded.name, built, listings=output is None))
    elif dump is None or output is not None:
        print_resources(built)
    else:
        with put_aside():
            print_resources(built)
        show_listings(built, dump)
    return 1 if any(each.status is not None for each in built) else 0


def with_knobs(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    """Return the candidate with the knob values of ``NAME=VALUE`` texts. Raises ConfigError."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        declared = ", ".join(candidate.knobs) or "none"
        if not equals:
            raise ConfigError(f"--knob {text}: not NAME=VALUE")
        if name not in candidate.knobs:
            raise ConfigError(f"--knob {text}: no such knob; the kernel's knobs: {declared}")
        choices = candidate.knobs[name].choices
        chosen = [each for each in choices if str(each).lower() == value.lower()]
        if not chosen:
            raise ConfigError(
                f"--knob {text}: not among the choices of {name}: {', '.join(map(str, choices))}"
            )
        values[name] = chosen[0]
    return candidate.with_values(candidate.strategy, **values) if values else candidate


def _as_json(
    candidate: Candidate, problem: str, built: Sequence[Compiled], *, listings: bool
) -> dict[str, Any]:
    targets = [each.to_json() for each in built]
    if not listings:
        targets = [{**each, "listings": {}} for each in targets]
    return {
        "schema": 1, "problem": problem, "id": candidate.id, "language": candidate.language,
        "knobs": candidate.chosen, "targets": targets,
    }  # fmt: skip
