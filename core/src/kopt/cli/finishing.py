"""How a finished run is shown, and the exit code that says how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.cli.outcome import arithmetic, run_json, stages, worst_ratio
from kopt.cli.output import plain_table, print_json, put, put_path, write
from kopt.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.model.evaluation import Evaluation
    from kopt.model.measurement import Measurement
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
        print_run(run)
    return int(_CODES[run.status])


def print_run(run: Run) -> None:
    """Print a run's outcome: in one sentence, as a table, and what the best candidate is."""
    from rich.markup import escape

    where = f" on {run.device.name}" if run.device else ""
    put(f"{escape(run.problem.name)}{escape(where)}: [bold]{run.status}[/]")
    put(escape(verdict(run)))
    if told := arithmetic(run.problem):
        put(told)
    if run.status == "interrupted" and run.reason and not run.reason.startswith(run.status):
        write(f"{run.reason}\n")  # never wrapped: it may name the files that are waited for
    if run.baselines:
        put("", _table(run), "")
    for name, reason in run.failed_baselines.items():
        put(f"baseline {escape(name)} was left out: {escape(reason)}")
    if run.best is not None and run.best.measurement is not None:
        _print_best(run, run.best)
    trials = ", ".join(f"{count} {status}" for status, count in run.trials.items())
    because = run.reason if run.status not in {"interrupted", "running"} else ""
    ended = f"; it ended because: {because}" if because else ""
    put(f"{trials or 'no trials'} in {run.spend.seconds:.0f} s{escape(ended)}")
    put_path("run:", run.id)


def verdict(run: Run) -> str:
    """Return in one sentence what a run has shown, and what to do where it has shown nothing."""
    best = run.best.measurement if run.best else None
    if run.status == "running":
        return "It is still running, in another process."
    if run.status == "interrupted":
        found = f"what it found is not confirmed yet (kopt show {run.id}); " if run.trials else ""
        return f"It was interrupted; {found}go on with: kopt resume {run.id}"
    if run.status == "failed":
        return (
            "No kernel was tried. Other strategies may know this problem, and another backend may "
            "have more of them (kopt plugins); for a kernel of your own: kopt measure PROBLEM KERNEL"
        )
    if best is None and not run.trials:
        return f"Nothing was tried: keep {run.keep}."
    if best is None:
        return f"No candidate is right, timed and confirmed; what each did: kopt show {run.id}"
    if run.status == "improved":
        return f"The best kernel beats {_closest(best)}"
    unbeaten = [name for name in best.speedup if not best.beats(name)]
    return (
        f"Nothing beat {' or '.join(unbeaten)} by more than the noise ({best.noise:.1%}): keep "
        f"{run.keep}. Shown is the best that was found."
    )


def _closest(best: Measurement) -> str:
    """Say how far the baseline that comes closest is beaten."""
    name, speedup = min(best.speedup.items(), key=lambda item: item[1].median)
    others = " and every other baseline by more" if len(best.speedup) > 1 else ""
    return f"{name} by {speedup.median:.2f}x ({speedup.low:.2f} to {speedup.high:.2f}){others}."


def _table(run: Run) -> Table:
    from rich.markup import escape

    table = plain_table("", "MS>", "BEST IS FASTER BY>", "95 % INTERVAL>")
    best = run.best.measurement if run.best else None
    for name, measurement in run.baselines.items():
        interval = best.speedup.get(name) if best else None
        table.add_row(
            escape(name), f"{measurement.latency_ms:.4f}",
            f"{interval.median:.3f}x" if interval else "",
            f"{interval.low:.3f} to {interval.high:.3f}" if interval else "",
        )  # fmt: skip
    if run.copy_ms:
        table.add_row("plain copy of the same bytes", f"{run.copy_ms:.4f}", "", "")
    if best:
        table.add_row("[bold]best[/]", f"[bold]{best.latency_ms:.4f}[/]", "", "")
    return table


def _print_best(run: Run, best: Evaluation) -> None:
    from rich.markup import escape

    ratio = worst_ratio(best)
    said = f"; rms error {ratio:.2f}x of the reference's own" if ratio is not None else ""
    outcomes = ", ".join(f"{name} {outcome}" for name, outcome in stages(best).items())
    put(f"verified: {outcomes}{said}")
    knobs = ", ".join(f"{name}={value}" for name, value in best.candidate.chosen.items())
    put(escape(f"best: {best.id[:8]} {best.candidate.strategy}: {best.candidate.idea}"))
    if knobs:
        put(escape(f"knobs: {knobs}"))
    if run.source_path is not None:
        put_path("source:", run.source_path.absolute())
