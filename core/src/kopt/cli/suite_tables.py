"""Records of suites and their comparison as tables and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.cli.output import plain_table, print_json, put, put_path
from kopt.cli.suite_progress import gist
from kopt.errors import ExitCode
from kopt.suites.statistics import summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from kopt.model.measurement import Interval
    from kopt.suites.comparing import Comparison
    from kopt.suites.records import Row, SuiteRecord
    from kopt.suites.runner import SuiteOutcome
    from kopt.suites.statistics import Spread, Summary

SCHEMA = 1


def show_outcome(outcome: SuiteOutcome, file: Path, *, as_json: bool) -> int:
    """Print how far a suite came, and return its exit code."""
    show_record(outcome.record, as_json=as_json)
    if not as_json:
        put_path("record:", file)
    if outcome.interrupted:
        if not as_json:
            put("interrupted; the same command goes on")
        return int(ExitCode.INTERRUPTED)
    return int(ExitCode.IMPROVED if outcome.complete else ExitCode.NOT_IMPROVED)


def show_record(record: SuiteRecord, *, as_json: bool) -> None:
    """Print a record's rows and what they come to."""
    summary = summary_of(record)
    if as_json:
        print_json({"schema": SCHEMA, **record.to_json(), "summary": summary.to_json()})
        return
    from rich.markup import escape

    held = f" ({record.settings.precision})" if record.settings.precision else ""
    put(f"{escape(record.suite)} in {record.dtype}{held} on {escape(record.device.name)}")
    put(_rows(record), "", _spreads(summary), "", _fast(summary))
    for line in _words(record, summary):
        put(escape(line))


def _rows(record: SuiteRecord) -> Table:
    table = plain_table(
        "ID>", "NAME", "EAGER MS>", "COMPILE MS>", "BEST MS>", "KOPT MS>", "OVER COMPILE>",
        "OVER BEST>", "95 %", "OF BOUND>", "TRIALS>", "S>", "CHOSEN",
    )  # fmt: skip
    for row in record.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    from rich.markup import escape

    best, compiled = row.speedup.get("best"), row.speedup.get("torch.compile")
    return [
        row.id, escape(row.name), _ms(row.eager_ms), _ms(row.compile_ms),
        _ms(row.best_baseline_ms), _ms(row.kopt_ms), _times(compiled), _times(best),
        f"{best.low:.2f}-{best.high:.2f}" if best and row.verdict == "improved" else "",
        f"{row.of_bound_percent:.0f} %" if row.of_bound_percent is not None else "",
        str(row.count), f"{row.seconds:.0f}", escape(_chosen(row)),
    ]  # fmt: skip


def _chosen(row: Row) -> str:
    if row.chosen is None:
        return f"failed: {gist(row.reason)}"
    if row.chosen.what == "baseline":
        return f"baseline {row.chosen.name}"
    return f"{row.chosen.strategy} ({row.chosen.language}): {row.chosen.name}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _times(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.median:.3f}x"


def _spreads(summary: Summary) -> Table:
    table = plain_table(
        "SPEEDUP OVER", "GEOMEAN>", "MEDIAN>", "MEAN>", "LEAST>", "MOST>", "FASTER>",
        "BY A KERNEL>", "SLOWER>", "OF>", "LEFT OUT>",
    )  # fmt: skip
    for over, spread in summary.over.items():
        table.add_row(_named(over), *_figures(spread))
    return table


def _named(over: str) -> str:
    return "best baseline" if over == "best" else over


def _figures(spread: Spread) -> list[str]:
    means = (spread.geomean, spread.median, spread.mean, spread.least, spread.most)
    counts = (
        spread.faster, spread.faster_by_kernel, spread.slower, spread.count, spread.left_out
    )  # fmt: skip
    return [*(f"{value:.3f}x" for value in means), *map(str, counts)]


def _fast(summary: Summary) -> Table:
    ps = list(next(iter(summary.fast_p.values())))
    table = plain_table("FAST_P OVER", *(f"P = {p}>" for p in ps))
    for over, shares in summary.fast_p.items():
        table.add_row(_named(over), *(f"{shares[p]:.3f}" for p in ps))
    return table


def _words(record: SuiteRecord, summary: Summary) -> list[str]:
    problems = "1 problem" if summary.problems == 1 else f"{summary.problems} problems"
    lines = [
        f"{problems}: {summary.improved} improved, {summary.kept} keep their "
        f"fastest baseline, {summary.failed} failed, {summary.not_run} not run; "
        f"{summary.seconds:.0f} s in all, {summary.most_seconds:.0f} s at most for one"
    ]
    if crowded := [row.id for row in record.rows if row.crowded]:
        lines.append(
            f"{len(crowded)} lacked memory beside others ({', '.join(crowded)}): the command that "
            "recorded them runs them again"
        )
    if summary.of_bound_percent is not None:
        lines.append(f"the median is {summary.of_bound_percent:.0f} % of the bound")
    if record.device.peaks is None and record.rows:
        lines.append(
            "no bounds: this device was not measured before; kopt doctor --measure does it"
        )
    return lines


def put_comparison(found: Comparison, a: str, b: str) -> None:
    """Print a comparison."""
    from rich.markup import escape

    put(escape(f"A = {a}, B = {b}; speedups over {_named(found.over)}"))
    columns = ("ID>", "NAME", "A>", "B>", "A/B>", "95 %", "FASTER")
    times = ("A MS>", "B MS>") if found.same_device else ()
    table = plain_table(*columns, *times, "")
    for row in found.rows:
        ms = (_ms(row.a_ms), _ms(row.b_ms)) if found.same_device else ()
        table.add_row(
            row.id, escape(row.name), _times(row.a), _times(row.b), f"{row.ratio.median:.3f}",
            f"{row.ratio.low:.3f} to {row.ratio.high:.3f}", row.winner, *ms,
            "" if row.same_problem else "another source",
        )  # fmt: skip
    put(table)
    for line in _verdict(found):
        put(escape(line))


def _verdict(found: Comparison) -> list[str]:
    lines = [
        f"A over B: geomean {found.geomean:.3f} of {len(found.rows)}; A is faster on {found.a_wins}, "
        f"B on {found.b_wins}, neither on {found.ties}"
    ]
    for side, ids in (("A", found.only_a), ("B", found.only_b)):
        if ids:
            lines.append(f"in {side} alone: {', '.join(ids)}")
    if not found.same_device:
        lines.append("the devices differ: only speedups are compared, and no times")
    if found.differing:
        lines.append(f"differing (A | B): {'; '.join(found.differing)}")
    return lines
