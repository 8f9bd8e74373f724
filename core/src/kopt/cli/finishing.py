"""How a finished run is shown, and the exit code that says how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kopt.cli.outcome import run_json, stages, worst_ratio
from kopt.cli.output import plain_table, print_json, stdout
from kopt.errors import ExitCode

if TYPE_CHECKING:
    from kopt.model.run import Run

_CODES = {
    "improved": ExitCode.IMPROVED, "not-improved": ExitCode.NOT_IMPROVED,
    "interrupted": ExitCode.INTERRUPTED, "failed": ExitCode.NOT_IMPROVED,
    "running": ExitCode.INTERRUPTED,
}  # fmt: skip


def show_run(run: Run, *, as_json: bool) -> int:
    """Print a run and return its exit code."""
    if as_json:
        print_json(run_json(run))
    else:
        _print(run)
    return int(_CODES[run.status])


def _print(run: Run) -> None:
    console = stdout()
    device = run.device.name if run.device else "no device"
    console.print(f"{escape(run.problem.name)} on {escape(device)}: [bold]{run.status}[/]")
    console.print(f"{escape(run.reason)}")
    table = plain_table("", "ms>", "best is faster by>", "95 % interval>")
    best = run.best.measurement if run.best else None
    for name, measurement in run.baselines.items():
        interval = best.speedup.get(name) if best else None
        table.add_row(
            name, f"{measurement.latency_ms:.4f}",
            f"{interval.median:.3f}x" if interval else "",
            f"{interval.low:.3f} to {interval.high:.3f}" if interval else "",
        )  # fmt: skip
    if run.copy_ms:
        table.add_row("plain copy of the same bytes", f"{run.copy_ms:.4f}", "", "")
    if best:
        table.add_row("[bold]best[/]", f"[bold]{best.latency_ms:.4f}[/]", "", "")
    console.print(table)
    _print_best(run)
    trials = ", ".join(f"{count} {status}" for status, count in run.trials.items())
    console.print(f"{trials or 'no trials'} in {run.spend.seconds:.0f} s; run {run.id}")


def _print_best(run: Run) -> None:
    console, best = stdout(), run.best
    if best is None or best.measurement is None:
        console.print("No candidate was found correct and confirmed.")
        return
    ratio = worst_ratio(best)
    said = f"; rms error {ratio:.2f}x of the reference's own" if ratio is not None else ""
    outcomes = ", ".join(f"{name} {outcome}" for name, outcome in stages(best).items())
    console.print(f"verified: {outcomes}{said}")
    knobs = ", ".join(f"{name}={value}" for name, value in best.candidate.chosen.items())
    console.print(f"{escape(best.candidate.idea)}" + (f" ({knobs})" if knobs else ""))
    console.print(f"source: {run.source_path}", soft_wrap=True)
