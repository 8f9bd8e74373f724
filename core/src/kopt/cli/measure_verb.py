"""``kopt measure``: verify and time kernels beside every baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    ConfigFile,
    DeviceName,
    KernelPaths,
    PluginOptions,
    PrecisionName,
    ProblemPath,
    Verb,
    Verifiers,
    settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.evaluator import Opening
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem

    Results = list[tuple[Path, Evaluation]]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("measure", cls=Verb)(measure)


def measure(
    problem: ProblemPath,
    kernels: KernelPaths,
    backend: Backend = None,
    verifier: Verifiers = None,
    device: DeviceName = None,
    precision: PrecisionName = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Time kernels beside every baseline; a kernel that is not correct is not timed.

    Exits 0 where every kernel is correct and timed, whether faster or not.
    """
    given: dict[str, object] = {"backend": backend, "verifiers": verifier, "device": device}
    settings = settings_of(given, options=option, config=config, problem=problem)
    from rich.markup import escape

    from kopt.cli.outcome import measured_verdict
    from kopt.cli.progress import ProgressReporter
    from kopt.model.kernel_file import load_kernel
    from kopt.optimize import load_problem
    from kopt.single import open_bench

    loaded, candidates = load_problem(problem, precision), [load_kernel(path) for path in kernels]
    results: Results = []
    with (
        ProgressReporter() as progress,
        open_bench(loaded, candidates, settings, progress) as bench,
    ):
        for path, candidate in zip(kernels, candidates, strict=True):
            results.append((path, bench.measure(candidate)))
            progress.step(f"{escape(path.name)}: {measured_verdict(results[-1][1])}")
    if as_json:
        _print_json(loaded, bench.opening, results)
    else:
        _print(loaded, bench.opening, results)
    return 0 if all(evaluation.measured for _, evaluation in results) else 1


def _print_json(problem: Problem, opening: Opening, results: Results) -> None:
    from kopt.cli.outcome import evaluation_json, measured_verdict
    from kopt.cli.output import print_json

    print_json({
        "schema": 1, "device": opening.device.to_json(), "copy_ms": opening.copy_ms,
        "noise": opening.noise, "precision": problem.tolerance.precision,
        "baselines": {b.name: {"latency_ms": b.measurement.latency_ms} for b in opening.baselines},
        "failed_baselines": opening.failed_baselines,
        "kernels": [
            {"kernel": str(path), "verdict": measured_verdict(e), **evaluation_json(e)}
            for path, e in results
        ],
    })  # fmt: skip


def _print(problem: Problem, opening: Opening, results: Results) -> None:
    from rich.markup import escape

    from kopt.cli.outcome import arithmetic, further_times
    from kopt.cli.output import put

    put(f"on {escape(opening.device.name)}, A/A noise {opening.noise:.1%}")
    put(*filter(None, [arithmetic(problem)]), "")
    put(_table(opening, results), "")
    for name, reason in opening.failed_baselines.items():
        put(f"baseline {escape(name)} was left out: {escape(reason)}")
    for path, evaluation in results:
        if evaluation.detail:
            put(f"{escape(path.name)}: {escape(evaluation.detail)}")
    timed = [evaluation.measurement for _, evaluation in results if evaluation.measurement]
    if timed:
        put("improved: faster than every baseline by more than the noise")
    for path, evaluation in results:
        if evaluation.measurement:
            put(f"{escape(path.name)}: {further_times(evaluation.measurement)}")


def _table(opening: Opening, results: Results) -> Table:
    from rich.markup import escape

    from kopt.cli.outcome import measured_verdict
    from kopt.cli.output import plain_table

    table = plain_table("KERNEL", "VERDICT", "MS>", "FASTER BY>", "95 % INTERVAL>", "THAN")
    for baseline in opening.baselines:
        latency = f"{baseline.measurement.latency_ms:.4f}"
        table.add_row(escape(baseline.name), "baseline", latency)
    for path, evaluation in results:
        cells = [escape(path.name), measured_verdict(evaluation)]
        measurement = evaluation.measurement
        if measurement is None:
            table.add_row(*cells)
            continue
        cells.append(f"{measurement.latency_ms:.4f}")
        for name, i in measurement.speedup.items():
            interval = f"{i.low:.3f} to {i.high:.3f}"
            table.add_row(*cells, f"{i.median:.3f}x", interval, escape(name))
            cells = ["", "", ""]
    return table
