"""A suite's figures, against values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.suites.statistics import fast_p, geomean, summary_of


def test_geomean() -> None:
    assert geomean([1.0, 4.0, 16.0]) == pytest.approx(4.0)


def test_the_figures_of_six_problems(made: Any) -> None:
    """Three kernels, a kept baseline, a failure, and one that was not run."""
    rows = [
        made.row(1, best=2.0, eager=8.0, compile=4.0, seconds=30.0),
        made.row(2, best=1.2, eager=1.5, compile=1.2),
        made.row(3, best=1.6, eager=2.0),  # torch.compile does not run it
        made.row(4, "baseline", best=1.0, eager=1.0, compile=1.01),
        made.row(5, "failed"),
    ]
    summary = summary_of(made.record(rows, planned=6))
    assert (summary.problems, summary.not_run) == (6, 1)
    assert (summary.improved, summary.kept, summary.failed) == (3, 1, 1)
    assert (summary.seconds, summary.most_seconds) == (70.0, 30.0)
    # Of all six: answered 4, above 1, above 1.5 (1.5 itself is not), above 2 (2 itself is not).
    assert summary.fast_p["eager"] == pytest.approx(
        {"0": 4 / 6, "1": 3 / 6, "1.5": 2 / 6, "2": 1 / 6}
    )
    assert summary.fast_p["best"] == pytest.approx({"0": 4 / 6, "1": 3 / 6, "1.5": 2 / 6, "2": 0.0})
    compiled = summary.over["torch.compile"]
    assert (compiled.count, compiled.left_out) == (3, 3)
    assert compiled.geomean == pytest.approx((4.0 * 1.2 * 1.01) ** (1 / 3))
    assert compiled.median == 1.2
    assert compiled.mean == pytest.approx((4.0 + 1.2 + 1.01) / 3)
    assert (compiled.least, compiled.most) == (1.01, 4.0)
    assert (compiled.faster, compiled.slower) == (2, 0)  # 1.01 is within its interval
    best = summary.over["best"]
    assert (best.count, best.left_out, best.faster, best.faster_by_kernel) == (4, 2, 3, 3)
    assert best.geomean == pytest.approx((2.0 * 1.2 * 1.6 * 1.0) ** 0.25)
    assert best.median == pytest.approx(1.4)


def test_a_kept_baseline_that_beats_another_is_counted_apart(made: Any) -> None:
    rows = [made.row(1, "baseline", best=1.0, compile=3.0), made.row(2, best=1.5, compile=2.0)]
    spread = summary_of(made.record(rows)).over["torch.compile"]
    assert (spread.faster, spread.faster_by_kernel) == (2, 1)


def test_a_failure_counts_in_no_mean_and_in_no_numerator(made: Any) -> None:
    good = [made.row(1, best=4.0), made.row(2, best=9.0)]
    with_failure = [*good, made.row(3, "failed")]
    assert summary_of(made.record(with_failure)).over["best"].geomean == pytest.approx(6.0)
    assert fast_p(good, "best", 2)["1"] == 1.0
    assert fast_p(with_failure, "best", 3)["1"] == pytest.approx(2 / 3)


def test_nothing_run_yet(made: Any) -> None:
    summary = summary_of(made.record([], planned=3))
    assert (summary.not_run, summary.over, summary.of_bound_percent) == (3, {}, None)
    assert summary.fast_p["eager"] == {"0": 0.0, "1": 0.0, "1.5": 0.0, "2": 0.0}


def test_slower_is_counted(made: Any) -> None:
    spread = summary_of(made.record([made.row(1, "baseline", best=1.0, eager=0.5)])).over["eager"]
    assert (spread.faster, spread.slower) == (0, 1)
