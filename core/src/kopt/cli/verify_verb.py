"""``kopt verify``: build one kernel and judge its correctness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopt.cli.options import (
    AsJson, Backend, ConfigFile, DeviceName, KernelPath, PluginOptions, ProblemPath, Verifiers,
    settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from kopt.model.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("verify")(verify)


def verify(
    problem: ProblemPath,
    kernel: KernelPath,
    backend: Backend = None,
    verifier: Verifiers = None,
    device: DeviceName = None,
    target: Annotated[
        str | None,
        typer.Option(help="Also compile ahead of time for this GPU, as sm_90, and show resources."),
    ] = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Say whether a kernel computes what the reference computes, with the evidence."""
    given: dict[str, object] = {"backend": backend, "verifiers": verifier, "device": device}
    settings = settings_of(given, options=option, config=config, problem=problem)
    from kopt.cli.outcome import evaluation_json
    from kopt.cli.output import print_json
    from kopt.single import open_single

    with open_single(problem, kernel, settings, architecture=target) as single:
        evaluation = single.verify()
        kernels = single.ahead() if target else []
    if as_json:
        extra = {"target": target, "kernels": kernels} if target else {}
        print_json({**evaluation_json(evaluation), **extra})
    else:
        _print(evaluation, target, kernels)
    return 0 if evaluation.status == "correct" else 1


def _print(evaluation: Evaluation, target: str | None, kernels: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    from kopt.cli.output import plain_table, stdout

    console = stdout()
    console.print(f"[bold]{evaluation.status}[/] {escape(evaluation.detail)}")
    table = plain_table("STAGE", "OUTCOME", "EVIDENCE")
    for verification in evaluation.verifications:
        for stage in verification.stages:
            table.add_row(stage.stage, stage.outcome, escape(stage.evidence))
    if evaluation.verifications:
        console.print(table)
    if evaluation.build and evaluation.build.resources.get("interpreted"):
        console.print("run by Triton's interpreter on a CPU: correctness only, nothing was timed")
    if target:
        resources = plain_table("KERNEL", "REGISTERS>", "SPILLS B>", "SHARED B>", "LIMITS")
        for kernel in kernels:
            resources.add_row(*_resources(kernel))
        console.print(f"compiled ahead of time for {target}:")
        console.print(resources)


def _resources(kernel: dict[str, Any]) -> list[str]:
    return [
        str(kernel.get("name", "")), str(kernel.get("registers", "")),
        str(kernel.get("spill_bytes", "")), str(kernel.get("shared_bytes", "")),
        "; ".join(map(str, kernel.get("limits_exceeded", ()))) or "within",
    ]  # fmt: skip
