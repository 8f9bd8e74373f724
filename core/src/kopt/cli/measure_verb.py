"""``kopt measure``: verify and time kernels beside every baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import (
    AsJson, Backend, ConfigFile, DeviceName, PluginOptions, ProblemPath, Verifiers, settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from kopt.evaluator import Opening
    from kopt.model.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("measure")(measure)


def measure(
    problem: ProblemPath,
    kernels: Annotated[list[Path], typer.Argument(help="Kernel files.")],
    backend: Backend = None,
    verifier: Verifiers = None,
    device: DeviceName = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Time kernels beside every baseline; a kernel that is not correct is not timed."""
    given: dict[str, object] = {"backend": backend, "verifiers": verifier, "device": device}
    settings = settings_of(given, options=option, config=config, problem=problem)
    from kopt.cli.outcome import evaluation_json
    from kopt.cli.output import print_json
    from kopt.single import open_single

    results: list[tuple[Path, Evaluation]] = []
    for kernel in kernels:
        with open_single(problem, kernel, settings) as single:
            single.refuse_untimeable()
            results.append((kernel, single.measure()))
            opening = single.opening
    if as_json:
        rows = [{"kernel": str(path), **evaluation_json(e)} for path, e in results]
        print_json({
            "schema": 1, "device": opening.device.to_json(), "copy_ms": opening.copy_ms,
            "baselines": {
                b.name: {"latency_ms": b.measurement.latency_ms} for b in opening.baselines
            },
            "kernels": rows,
        })  # fmt: skip
    else:
        _print(opening, results)
    return 0 if all(e.measured for _, e in results) else 1


def _print(opening: Opening, results: list[tuple[Path, Evaluation]]) -> None:
    from rich.markup import escape

    from kopt.cli.output import plain_table, stdout

    names = [b.name for b in opening.baselines]
    table = plain_table("KERNEL", "STATUS", "ms>", *(f"against {name}>" for name in names))
    for baseline in opening.baselines:
        table.add_row(baseline.name, "baseline", f"{baseline.measurement.latency_ms:.4f}")
    for path, evaluation in results:
        measurement = evaluation.measurement
        if measurement is None:
            table.add_row(path.name, str(evaluation.status), "")
            continue
        ratios = [
            f"{i.median:.3f}x ({i.low:.3f} to {i.high:.3f})"
            for i in (measurement.speedup[name] for name in names)
        ]
        table.add_row(path.name, "correct", f"{measurement.latency_ms:.4f}", *ratios)
    console = stdout()
    console.print(f"on {escape(opening.device.name)}, A/A noise {opening.noise:.1%}")
    console.print(table)
    for path, evaluation in results:
        if evaluation.detail:
            console.print(f"{path.name}: {escape(evaluation.detail)}")
