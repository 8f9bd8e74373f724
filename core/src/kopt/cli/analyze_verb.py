"""``kopt analyze``: what a problem takes at least, and how far its baselines are from that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kopt.cli.options import (
    AsJson,
    ConfigFile,
    DeviceName,
    PluginOptions,
    PrecisionName,
    ProblemPath,
    Verb,
    settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from kopt.insight import Analyzed
    from kopt.model.problem import Precision

_NOTHING = 1.05
"""Time over bound below which no kernel is worth the search."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("analyze", cls=Verb)(analyze)


def analyze(
    problem: ProblemPath,
    device: DeviceName = None,
    precision: PrecisionName = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Say what a problem takes at least on this device, and what there is to gain.

    The bound is the larger of its compulsory bytes at the device's measured bandwidth and its
    matrix operations at the measured rate of their precision.
    """
    settings = settings_of({"device": device}, options=option, config=config, problem=problem)
    from kopt.cli.output import print_json
    from kopt.cli.progress import ProgressReporter
    from kopt.insight import analyze as look
    from kopt.optimize import load_problem

    loaded = load_problem(problem, precision)
    with ProgressReporter() as progress:
        found = look(loaded, settings, progress)
    used = loaded.tolerance.precision
    rows = [_row(found, name, used) for name in found.opening.signature.workloads]
    if as_json:
        print_json({
            "schema": 1, "problem": loaded.name, "device": found.device.to_json(),
            "precision": loaded.tolerance.precision,
            "fastest": found.opening.fastest, "workloads": rows,
            "failed_baselines": found.opening.failed_baselines,
        })  # fmt: skip
    else:
        from kopt.cli.outcome import arithmetic
        from kopt.cli.output import put

        if told := arithmetic(loaded):
            put(told)
        _put(found, rows)
    return 0


def _row(found: Analyzed, name: str, precision: Precision) -> dict[str, Any]:
    from kopt.model.work import bound_ms, per_output, work_of

    workload = found.opening.signature.workloads[name]
    work = work_of(workload)
    bound = bound_ms(work, found.device.peaks, precision) if found.device.peaks else None
    times = {
        baseline.name: each.latency_ms
        for baseline in found.opening.baselines
        for each in baseline.measurement.workloads
        if each.workload == name
    }
    best = times.get(found.opening.fastest)
    least = bound.total_ms if bound else None
    return {
        "workload": name,
        "work": {**work.to_json(), "matrix_flops": work.matrix_flops},
        "per_output": {key: each.to_json() for key, each in per_output(workload).items()},
        "intensity_flop_per_byte": work.intensity,
        "bound": bound.to_json() if bound else None,
        "baselines_ms": times,
        "headroom": best / least if best and least else None,
        "nothing_to_gain": best / least <= _NOTHING if best and least else None,
    }


def _put(found: Analyzed, rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    from kopt.cli.output import plain_table, put
    from kopt.cli.profile_tables import number

    device = found.device
    put(f"on {escape(device.name)}")
    for row in rows:
        work, bound = row["work"], row["bound"]
        table = plain_table(escape(row["workload"]), "VALUE>", "")
        table.add_row("compulsory bytes", number(work["compulsory_bytes"]), "read or written once")
        table.add_row("matrix operations", number(work["matrix_flops"]), "products, convolutions")
        table.add_row("other elements", number(work["vector_ops"]), "produced or reduced")
        if row["intensity_flop_per_byte"] is not None:
            table.add_row("intensity", number(row["intensity_flop_per_byte"]), "operations a byte")
        if bound:
            table.add_row("memory bound ms", _ms(bound["memory_ms"]), "")
            table.add_row("compute bound ms", _ms(bound["compute_ms"]), "")
        for name, latency in row["baselines_ms"].items():
            mark = "fastest" if name == found.opening.fastest else ""
            table.add_row(f"{escape(name)} ms", f"{latency:.4f}", mark)
        put("", table, _said(row))


def _ms(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"


def _said(row: dict[str, Any]) -> str:
    headroom = row["headroom"]
    if headroom is None:
        return "no bound: the device's rate for this precision is not known"
    limited = row["bound"]["limited_by"]
    if row["nothing_to_gain"]:
        return f"nothing to gain: the fastest baseline is within {headroom - 1:.0%} of the bound ({limited})"
    return f"room for {headroom:.2f}x over the fastest baseline; the bound is {limited}"
