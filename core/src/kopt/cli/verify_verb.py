"""``kopt verify``: judge one kernel's correctness, or whether a problem can tell right from wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    DeviceName,
    PluginOptions,
    PrecisionName,
    ProblemPath,
    Verb,
    Verifiers,
    settings_of,
)  # fmt: skip
from kopt.errors import ConfigError

if TYPE_CHECKING:
    from kopt.config import Settings
    from kopt.evaluator import Compiled
    from kopt.model.problem import Problem
    from kopt.single import Checked


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("verify", cls=Verb)(verify)


def verify(
    problem: ProblemPath,
    kernel: Annotated[
        Path | None,
        typer.Argument(metavar="[KERNEL]", help="A kernel file: .cpp, .cu or .py."),
    ] = None,
    backend: Backend = None,
    verifier: Verifiers = None,
    device: DeviceName = None,
    precision: PrecisionName = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="sm_NN",
            help="Also compile ahead of time for this GPU, as sm_90, and show resources.",
        ),
    ] = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Say whether a kernel computes what the reference computes, with the evidence.

    Without a GPU, Triton kernels are interpreted, at reduced sizes. Without a kernel, say which
    known-wrong results the problem's inputs let through.
    """
    if kernel is None and (target or backend):
        raise ConfigError(
            "--target and --backend are about a kernel, and none is given; name one, as in "
            "kopt verify PROBLEM KERNEL"
        )
    given: dict[str, object] = {"backend": backend, "verifiers": verifier, "device": device}
    settings = settings_of(given, options=option, config=config, problem=problem)
    from kopt import single
    from kopt.cli.progress import ProgressReporter
    from kopt.model.kernel_file import load_kernel
    from kopt.optimize import load_problem

    loaded = load_problem(problem, precision)
    if kernel is None:
        return _lint(loaded, settings, as_json=as_json)
    candidate = load_kernel(kernel)
    with ProgressReporter() as steps:
        compiled = (
            single.build(loaded, candidate, settings, [target], steps=steps)[0] if target else None
        )
        checked = single.verify(loaded, candidate, settings, steps)
    if as_json:
        _print_json(loaded, checked, compiled)
    else:
        _print(loaded, checked, compiled)
    fits = compiled is None or compiled.status is None
    return 0 if checked.evaluation.status == "correct" and fits else 1


def _lint(problem: Problem, settings: Settings, *, as_json: bool) -> int:
    from kopt import single
    from kopt.cli.oracle_table import oracle_json, print_oracle
    from kopt.cli.output import print_json
    from kopt.cli.progress import ProgressReporter

    with ProgressReporter() as steps:
        report = single.lint(problem, settings, steps)
    if as_json:
        print_json(oracle_json(report, problem.name))
    else:
        print_oracle(report)
    return 1 if report.survivors else 0


def _print_json(problem: Problem, checked: Checked, compiled: Compiled | None) -> None:
    from kopt.cli.outcome import evaluation_json
    from kopt.cli.output import print_json

    data = {
        **evaluation_json(checked.evaluation), "precision": problem.tolerance.precision,
        "reduced_sizes": checked.reduced or None,
    }  # fmt: skip
    if compiled is not None:
        data |= {
            "target": compiled.target, "kernels": list(compiled.kernels),
            "target_fault": compiled.fault or None,
        }  # fmt: skip
    print_json(data)


def _print(problem: Problem, checked: Checked, compiled: Compiled | None) -> None:
    from rich.markup import escape

    from kopt.cli.outcome import arithmetic, stage_table
    from kopt.cli.output import put

    evaluation = checked.evaluation
    shown = any(stage.outcome == "fail" for v in evaluation.verifications for stage in v.stages)
    detail = f": {evaluation.detail}" if evaluation.detail and not shown else ""
    put(f"[bold]{evaluation.status}[/]{escape(detail)}")
    if told := arithmetic(problem):
        put(told)
    if evaluation.verifications:
        put("", stage_table(evaluation), "")
    if checked.reduced:
        put(f"verified at reduced sizes {escape(checked.reduced)}: Triton's interpreter is slow")
        if evaluation.status != "correct":
            put(
                "a kernel that relies on the problem's own sizes may fail at others: to choose "
                "them, add a small \\[\\[workloads]] table with role = 'check'"
            )
    if evaluation.build and evaluation.build.resources.get("interpreted"):
        put("run by Triton's interpreter on a CPU: correctness only, nothing was timed")
    if evaluation.status == "unsupported" and evaluation.candidate.language == "cuda":
        _print_next_step(compiled)
    if compiled is not None:
        _print_compiled(compiled)


def _print_next_step(compiled: Compiled | None) -> None:
    from kopt.cli.output import put

    if compiled is None:
        put("here `kopt build PROBLEM KERNEL --target sm_90` compiles it and shows what it uses")


def _print_compiled(compiled: Compiled) -> None:
    from kopt.cli.output import put
    from kopt.cli.resource_table import print_resources

    put(f"compiled ahead of time for {compiled.target}, at the problem's own sizes:", "")
    print_resources([compiled])
