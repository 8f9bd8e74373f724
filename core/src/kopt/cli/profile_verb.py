"""``kopt profile``: what profilers measure of a kernel, and what limits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    DeviceName,
    Judges,
    PluginOptions,
    PrecisionName,
    Profilers,
    Verb,
    Verifiers,
    settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from kopt.insight import Profiled
    from kopt.model.problem import Problem

_SHOW = "show"
What = Annotated[
    str,
    typer.Argument(metavar="PROBLEM", help="A problem, as for `kopt measure`; or the word show."),
]
Which = Annotated[
    Path,
    typer.Argument(
        metavar="KERNEL", help="A kernel file; after show, a report: .ncu-rep or ncu's CSV."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Show every metric, the tools' own names too.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("profile", cls=Verb)(profile)


def profile(
    problem: What,
    kernel: Which,
    profiler: Profilers = None,
    judge: Judges = None,
    backend: Backend = None,
    verifier: Verifiers = None,
    device: DeviceName = None,
    precision: PrecisionName = None,
    everything: All = False,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Verify and time a kernel, measure how it uses the device, and say what limits it.

    `kopt profile show FILE` shows a report that a profiler's tool wrote, on any machine. Without
    --profiler and --judge all that are installed are asked. Exits 1 where the kernel is not correct,
    or where a profiler or judge that you named failed.
    """
    if problem == _SHOW and not Path(_SHOW).exists():
        return _show(kernel, everything=everything, as_json=as_json)
    given: dict[str, object] = {
        "backend": backend, "verifiers": verifier, "device": device, "profilers": profiler,
        "judges": judge,
    }  # fmt: skip
    path = Path(problem)
    settings = settings_of(given, options=option, config=config, problem=path)
    from kopt.cli.output import print_json
    from kopt.cli.profile_tables import put_profiled
    from kopt.cli.progress import ProgressReporter
    from kopt.insight import profile as look
    from kopt.model.kernel_file import load_kernel
    from kopt.model.verification import Status
    from kopt.optimize import load_problem

    loaded, candidate = load_problem(path, precision), load_kernel(kernel)
    with ProgressReporter() as progress:
        found = look(loaded, candidate, settings, progress)
    if as_json:
        print_json(_as_json(loaded, found))
    else:
        from kopt.cli.outcome import arithmetic
        from kopt.cli.output import put

        if told := arithmetic(loaded):
            put(told)
        put_profiled(found, everything=everything)
    return 0 if found.evaluation.status is Status.CORRECT and found.complete else 1


def _as_json(problem: Problem, found: Profiled) -> dict[str, object]:
    return {
        "schema": 1,
        "problem": problem.name,
        "precision": problem.tolerance.precision,
        "device": found.device.to_json(),
        "signature": found.signature.to_json(),
        "evaluation": found.evaluation.to_json(),
        "profiles": [each.to_json() for each in found.profiles],
        "diagnoses": [each.to_json() for each in found.diagnoses],
        "left_out": found.left_out,
    }


def _show(path: Path, *, everything: bool, as_json: bool) -> int:
    from kopt.cli.output import print_json
    from kopt.cli.profile_tables import put_profile
    from kopt.insight import read_profile

    found = read_profile(path)
    if as_json:
        print_json({"schema": 1, "profile": found.to_json()})
    else:
        put_profile(found, everything=everything)
    return 0
