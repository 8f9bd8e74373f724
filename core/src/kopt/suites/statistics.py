"""What a suite's rows come to: shares, means and counts, and what they leave out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from kopt.model.record import Record
from kopt.suites.records import OVER, Over

if TYPE_CHECKING:
    from kopt.model.measurement import Interval
    from kopt.suites.records import Row, SuiteRecord

FAST = (0.0, 1.0, 1.5, 2.0)
"""The p of fast_p."""


class Spread(Record):
    """Speedups over one baseline, of the problems that have one; the others count in no mean."""

    count: int
    left_out: int
    """Problems without this speedup: not run, failed, or without this baseline."""
    geomean: float
    median: float
    mean: float
    least: float
    most: float
    faster: int
    """Whose interval lies above 1."""
    faster_by_kernel: int
    """Those of them where a kernel is chosen, not a baseline that beats another one."""
    slower: int
    """Whose interval lies below 1."""


class Summary(Record):
    """A record in figures."""

    problems: int
    """All that were asked for."""
    not_run: int
    improved: int
    kept: int
    """Where the fastest baseline is the answer, as no kernel was faster."""
    failed: int
    fast_p: dict[Over, dict[str, float]]
    """Share of ALL problems with an answer that is more than p times as fast as the baseline; p = 0:
    with an answer at all. A problem that failed or was not run is in no numerator. KernelBench's
    is the one over ``eager`` (Ouyang et al. 2025, section 3.3)."""
    over: dict[Over, Spread] = Field(default_factory=dict)
    of_bound_percent: float | None = None
    """Median."""
    seconds: float
    most_seconds: float
    """Of one problem."""


def summary_of(record: SuiteRecord) -> Summary:
    """Return a record's figures."""
    rows, total = record.rows, len(record.planned)
    bounds = [row.of_bound_percent for row in rows if row.of_bound_percent is not None]
    spreads = {over: _spread(rows, over, total) for over in OVER}
    return Summary(
        problems=total,
        not_run=len(record.missing),
        improved=sum(row.verdict == "improved" for row in rows),
        kept=sum(row.verdict == "baseline" for row in rows),
        failed=sum(row.verdict == "failed" for row in rows),
        fast_p={over: fast_p(rows, over, total) for over in OVER},
        over={over: spread for over, spread in spreads.items() if spread is not None},
        of_bound_percent=median(bounds) if bounds else None,
        seconds=sum(row.seconds for row in rows),
        most_seconds=max((row.seconds for row in rows), default=0.0),
    )


def fast_p(rows: Sequence[Row], over: Over, total: int) -> dict[str, float]:
    """Return p to the share of ``total`` problems that are answered and more than p times as fast."""
    answered = [row for row in rows if row.verdict != "failed"]
    found = {}
    for p in FAST:
        good = [
            row
            for row in answered
            if p == 0 or (over in row.speedup and row.speedup[over].median > p)
        ]
        found[f"{p:g}"] = len(good) / total if total else 0.0
    return found


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values."""
    return math.exp(sum(map(math.log, values)) / len(values))


def faster(interval: Interval) -> bool:
    """Whether a speedup's interval lies above 1."""
    return interval.low > 1.0


def _spread(rows: Sequence[Row], over: Over, total: int) -> Spread | None:
    known = [row for row in rows if row.verdict != "failed" and over in row.speedup]
    if not known:
        return None
    intervals = [row.speedup[over] for row in known]
    medians = [interval.median for interval in intervals]
    return Spread(
        count=len(known), left_out=total - len(known), geomean=geomean(medians),
        median=median(medians), mean=sum(medians) / len(medians), least=min(medians),
        most=max(medians), faster=sum(map(faster, intervals)),
        faster_by_kernel=sum(faster(r.speedup[over]) for r in known if r.verdict == "improved"),
        slower=sum(interval.high < 1.0 for interval in intervals),
    )  # fmt: skip
