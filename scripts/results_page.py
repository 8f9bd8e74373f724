"""Writes docs/results.md from the suites' records in benchmarks/results: every row, wins and losses."""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kopt.model.measurement import Interval
from kopt.suites.joining import joined, replaced
from kopt.suites.records import Over, Row, SuiteRecord, read_suite
from kopt.suites.statistics import Summary, faster, summary_of

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "results" / "suites"
NOTES = ROOT / "benchmarks" / "results" / "notes"
SIZES = NOTES / "sizes-that-no-tuning-saw.md"
"""What a record of benchmarks/shapes came to, as ``benchmarks/shapes_table.py`` shows it."""
PAGE = ROOT / "docs" / "results.md"
_LONGEST = 150
"""Characters of a reason that stand in a table."""


_FIVE_MINUTES = 300.0


class Goal(NamedTuple):
    """What a suite is to reach."""

    what: str
    least: float
    reached: Callable[[SuiteRecord, Summary], float]
    missing: Callable[[Row], bool]
    """Whether a row stands in its way; never, where no row does more than another."""
    show: str = "{:.0f}"


def _ratio(over: Over, least: float) -> Goal:
    """Return a goal for the geometric mean over a baseline."""
    name = "the best baseline" if over == "best" else over
    return Goal(
        f"geomean over {name}", least, lambda _, found: found.over[over].geomean,
        lambda _: False, "{:.2f}x",
    )  # fmt: skip


VERIFIED = Goal(
    "problems with a verified answer", 100, lambda _, found: found.improved + found.kept,
    lambda row: row.verdict == "failed",
)  # fmt: skip
FASTER = Goal(
    "faster than torch.compile, interval above 1", 75,
    lambda _, found: found.over["torch.compile"].faster,
    lambda row: not ("torch.compile" in row.speedup and faster(row.speedup["torch.compile"])),
)  # fmt: skip
NOT_SLOWER = Goal(
    "not slower than the best baseline", 100,
    lambda record, found: len(record.rows) - found.failed - found.over["best"].slower,
    lambda row: row.verdict == "failed" or row.speedup["best"].high < 1.0,
)  # fmt: skip
QUICK = Goal(
    "answered within five minutes", 100,
    lambda record, _: sum(row.seconds <= _FIVE_MINUTES for row in record.rows),
    lambda row: row.seconds > _FIVE_MINUTES,
)  # fmt: skip
GOALS = {
    "kernelbench-level1": (
        VERIFIED, FASTER, _ratio("torch.compile", 2.0), _ratio("best", 1.5), NOT_SLOWER, QUICK,
    ),
    "kernelbench-level2": (_ratio("torch.compile", 1.5), NOT_SLOWER),
}  # fmt: skip
HEAD = """# Results

Every row of every suite that was recorded, written by `scripts/results_page.py` from the records in `benchmarks/results/suites`, which hold every sample. No language model took part. Each kernel that is named here passed [the whole verification](explanation/verification.md), as it was when the row was recorded, and was [measured](explanation/measurement.md) in a fresh process, in pairs with the baselines; the interval is the 95 % one. Where no kernel beats every baseline by more than the noise, kopt keeps the fastest baseline and says so: such a row counts as exactly 1 over that baseline. "Best" is the fastest of eager PyTorch, torch.compile (default and max-autotune) and, for convolutions, cuDNN with `benchmark` on and with channels last.
"""


def main() -> int:
    """Write the page, or with ``--check`` say whether it is what it would be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page")
    given = parser.parse_args()
    if not any(given.records.glob("*.json")):
        print(f"no records in {given.records}: no page", file=sys.stderr)
        return int(given.page.exists())
    text = page(given.records)
    if given.check:
        return int(not given.page.exists() or given.page.read_text(encoding="utf-8") != text)
    given.page.write_text(text, encoding="utf-8")
    return 0


def page(folder: Path) -> str:
    """Return the page for the records of a folder, whose parts of one suite are put together."""
    groups: dict[tuple[str, ...], list[SuiteRecord]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        record = read_suite(path)
        arithmetic = record.settings.precision or ""
        groups[record.suite, record.dtype, record.device.name, arithmetic].append(record)
    parts = [HEAD, *(section(records) for _, records in sorted(groups.items()))]
    if folder == RECORDS:
        parts.append("\n" + SIZES.read_text(encoding="utf-8"))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def section(records: Sequence[SuiteRecord]) -> str:
    """Return a suite's heading, what its parts come to, and its table."""
    record = joined(records, latest=True)
    versions = ", ".join(f"{k} {v}" for k, v in sorted(record.device.versions.items()))
    seconds = f"{record.settings.seconds:.0f} s"
    dtype = f"{record.dtype} {record.settings.precision or ''}".strip()
    lines = [
        f"## {record.suite}, {dtype}, {record.device.name}", "",
        f"{versions}; kopt {record.kopt}; at most {seconds} of search for each problem.", "",
        *summary_lines(summary_of(record)), "", *goal_lines(record), *notes(record),
        *table(record.rows),
    ]  # fmt: skip
    if record.missing:
        lines += ["", f"Not run: {', '.join(f'{p.id} {p.name}' for p in record.missing)}."]
    if kept := [row for row in record.rows if row.verdict == "baseline"]:
        lines += [
            "",
            "Where the baseline is kept, the fastest kernel that was right:",
            "",
            *losses(kept),
        ]
    if earlier := replaced(records):
        lines += [
            "",
            "Run again later, so that these earlier rows do not count:",
            "",
            *table(earlier),
        ]
    return "\n".join(lines) + "\n"


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield what the rows come to, one line each."""
    yield (
        f"{summary.problems} problems: {summary.improved} improved, {summary.kept} keep their fastest "
        f"baseline, {summary.failed} failed, {summary.not_run} not run. At most "
        f"{summary.most_seconds:.0f} s for one."
    )
    yield ""
    yield from grid(
        ("over", "geomean", "median", "mean", "faster", "by a kernel", "slower", "of"),
        (
            (
                "the best baseline" if over == "best" else over, times(s.geomean), times(s.median),
                times(s.mean), s.faster, s.faster_by_kernel, s.slower, s.count,
            )
            for over, s in summary.over.items()
        ),
    )  # fmt: skip


def goal_lines(record: SuiteRecord) -> Iterator[str]:
    """Yield the suite's goals, what was reached, and which problems stand in the way of a missed one."""
    found = summary_of(record)
    lines = []
    for goal in GOALS.get(record.suite, ()):
        reached = goal.reached(record, found)
        missed = reached < goal.least
        names = [row.id for row in record.rows if goal.missing(row)] if missed else []
        lines.append((
            goal.what, goal.show.format(goal.least), goal.show.format(reached), "missed" if missed else "met",
            ", ".join(names),
        ))  # fmt: skip
    if lines:
        yield from grid(("goal", "at least", "reached", "", "in its way"), lines)
        yield ""


def notes(record: SuiteRecord) -> Iterator[str]:
    """Yield what is written by hand beside the records: what was tried where a goal is missed."""
    parts = (record.suite, record.dtype, record.settings.precision or "", record.device.name)
    path = NOTES / f"{'-'.join(part for part in parts if part).lower().replace(' ', '-')}.md"
    if path.exists():
        yield from (path.read_text(encoding="utf-8").strip(), "")


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows."""
    columns = ("", "problem", "eager ms", "torch.compile ms", "best ms", "kopt ms",
               "over torch.compile", "over the best", "of bound", "chosen", "s")  # fmt: skip
    yield from grid(columns, map(cells, rows))


def cells(row: Row) -> list[object]:
    """Return a row's cells."""
    best, compiled = row.speedup.get("best"), row.speedup.get("torch.compile")
    improved = row.verdict == "improved"
    return [
        row.id, row.name, ms(row.eager_ms), ms(row.compile_ms),
        f"{ms(row.best_baseline_ms)} {row.best_baseline or ''}", ms(row.kopt_ms),
        between(compiled), between(best) if improved else "",
        "" if row.of_bound_percent is None else f"{row.of_bound_percent:.0f} %",
        chosen(row), f"{row.seconds:.0f}",
    ]  # fmt: skip


def losses(rows: Iterable[Row]) -> Iterator[str]:
    """Yield what came closest where the baseline is kept, what was tried and why that ended."""
    columns = ("", "problem", "kept", "closest kernel ms", "over the best", "kernels", "ended")
    yield from grid(columns, (
        (
            row.id, row.name, f"{row.best_baseline} {ms(row.best_baseline_ms)}",
            ms(row.measurement.latency_ms if row.measurement else None),
            between(row.measurement.speedup.get(row.best_baseline or "") if row.measurement else None),
            ", ".join(f"{count} {status}" for status, count in row.trials.items()) or "none",
            ended(row.reason),
        )
        for row in rows
    ))  # fmt: skip


def ended(reason: str) -> str:
    """Return why a search ended, without whose words these are."""
    text = " ".join(reason.removeprefix("search: ").split())
    text = re.sub(r"no trustworthy answer to \w+: .*? failed in \w+: ", "", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def chosen(row: Row) -> str:
    """Return what kopt returns for a problem, in words."""
    if row.chosen is None:
        return f"failed: {row.reason.splitlines()[0][:80] if row.reason else ''}"
    if row.chosen.what == "baseline":
        return f"baseline {row.chosen.name}"
    return f"{row.chosen.language}: {row.chosen.name}"


def grid(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"


def ms(value: float | None) -> str:
    """Return milliseconds with four digits."""
    return "" if value is None else f"{value:.4g}"


def times(value: float) -> str:
    """Return a ratio."""
    return f"{value:.2f}x"


def between(interval: Interval | None) -> str:
    """Return a ratio with its interval; a baseline over itself has none."""
    if interval is None:
        return ""
    if interval.low == interval.high:
        return times(interval.median)
    return f"{interval.median:.2f}x ({interval.low:.2f} to {interval.high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
