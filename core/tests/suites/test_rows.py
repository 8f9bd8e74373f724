"""From a run to its row: what is chosen, and what it is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.model.device import Peaks
from kopt.model.measurement import Interval
from kopt.suites.rows import failed_row, ratio, row_of
from kopt.testing.problems import vector_add_signature


def test_a_kernel_that_beats_every_baseline(made: Any, tmp_path: Any) -> None:
    source = tmp_path / "best.cpp"
    source.write_text("// the winner\n")
    run = made.run("improved", 0.5).model_copy(update={"source_path": source})
    row = row_of(made.problem(1), run, vector_add_signature(), 3.0)
    assert (row.verdict, row.status, row.problem_id) == ("improved", "improved", run.problem.id)
    assert row.chosen is not None
    assert (row.chosen.what, row.chosen.name, row.chosen.strategy) == (
        "kernel",
        "one pass",
        "starters",
    )
    assert row.chosen.source == "// the winner\n"
    # The times are those of the blocks beside the kernel's: a tenth longer than at the opening.
    assert (row.kopt_ms, row.eager_ms, row.compile_ms) == pytest.approx((0.5, 2.2, 1.1))
    assert (row.best_baseline, row.best_baseline_ms) == ("torch.compile", pytest.approx(1.1))
    medians = {over: interval.median for over, interval in row.speedup.items()}
    assert medians == pytest.approx({"eager": 4.4, "torch.compile": 2.2, "best": 2.2})
    assert row.stages == {"verify.accuracy": "pass"}
    assert (row.seconds, row.count) == (12.0, 3)
    assert row.measurement is not None and len(row.measurement.workloads[0].pairs) == 3


def test_the_best_baseline_is_the_one_that_comes_closest(made: Any) -> None:
    """In the blocks of the confirmation another one may be ahead than at the opening."""
    speedup = {
        "eager": made.interval(3.0),
        "torch.compile": made.interval(2.0),
        "vendor": made.interval(1.5),
    }
    run = made.run("improved", 0.5, speedup=speedup)
    row = row_of(made.problem(1), run, None, 1.0)
    assert (row.best_baseline, row.speedup["best"].median) == ("vendor", 1.5)


@pytest.mark.parametrize("kernel_ms", [None, 0.99])
@pytest.mark.parametrize("status", ["not-improved", "failed"])
def test_nothing_faster_keeps_the_fastest_baseline(
    made: Any, status: str, kernel_ms: float | None
) -> None:
    row = row_of(made.problem(1), made.run(status, kernel_ms), None, 1.0)
    assert (row.verdict, row.status) == ("baseline", status)
    assert row.chosen is not None
    assert (row.chosen.what, row.chosen.name) == ("baseline", "torch.compile")
    assert row.kopt_ms == row.best_baseline_ms == row.compile_ms == 1.0
    one = Interval(median=1.0, low=1.0, high=1.0)
    assert row.speedup["best"] == row.speedup["torch.compile"] == one
    assert row.speedup["eager"] == made.interval(2.0)
    assert (row.measurement is None) == (kernel_ms is None)
    assert row.stages == {}


def test_speedups_between_baselines_are_as_uncertain_as_both(made: Any) -> None:
    times = {"eager": 4.0, "torch.compile": 2.0, "vendor": 1.0}
    row = row_of(made.problem(1), made.run("not-improved", baselines=times), None, 1.0)
    assert row.best_baseline == "vendor"
    over = row.speedup["torch.compile"]
    # Vendor is 4x and torch.compile 2x as fast as eager, both by 2 % more or less.
    assert over.median == pytest.approx(2.0)
    assert over.low == pytest.approx(2.0 * 0.98 / 1.02)
    assert over.high == pytest.approx(2.0 * 1.02 / 0.98)


def test_eager_the_fastest(made: Any) -> None:
    times = {"eager": 1.0, "torch.compile": 2.0}
    row = row_of(made.problem(1), made.run("not-improved", baselines=times), None, 1.0)
    assert (row.chosen and row.chosen.name, row.speedup["eager"].median) == ("eager", 1.0)
    assert row.speedup["torch.compile"].median == pytest.approx(2.0)


def test_without_torch_compile_there_is_no_speedup_over_it(made: Any) -> None:
    row = row_of(made.problem(1), made.run("improved", 0.5, baselines={"eager": 1.0}), None, 1.0)
    assert (row.compile_ms, set(row.speedup)) == (None, {"eager", "best"})


def test_without_a_baseline_it_failed(made: Any) -> None:
    row = row_of(made.problem(1), made.run("failed", baselines={}), None, 1.0)
    assert (row.verdict, row.chosen, row.speedup, row.kopt_ms) == ("failed", None, {}, None)


def test_the_bound(made: Any) -> None:
    """Two vectors of 1024 floats read and one written, at 12.288 GB/s: a microsecond."""
    run = made.run("improved", 0.004, peaks=Peaks(copy_gb_s=12.288))
    row = row_of(made.problem(1), run, vector_add_signature(1024), 1.0)
    assert row.bound_ms == pytest.approx(0.001)
    assert row.of_bound_percent == pytest.approx(25.0)
    assert row.limited_by == "memory"
    unknown = row_of(made.problem(1), made.run("improved", 0.004), vector_add_signature(), 1.0)
    assert (unknown.bound_ms, unknown.of_bound_percent) == (None, None)


def test_the_bound_of_several_workloads_is_weighted_as_their_latency_is(made: Any) -> None:
    from kopt.model.problem import Signature, Workload

    sizes = {"small": (1024, 1.0), "large": (4096, 3.0), "odd": (1 << 20, 1.0)}
    workloads = tuple(
        Workload(name=name, weight=weight, role="check" if name == "odd" else "measure")
        for name, (_, weight) in sizes.items()
    )
    signature = Signature(
        workloads={name: vector_add_signature(length).first for name, (length, _) in sizes.items()}
    )
    run = made.run("improved", 0.01, peaks=Peaks(copy_gb_s=12.288))
    problem = run.problem.model_copy(update={"workloads": workloads})
    row = row_of(made.problem(1), run.model_copy(update={"problem": problem}), signature, 1.0)
    assert row.bound_ms == pytest.approx((1 * 0.001 + 3 * 0.004) / 4)


def test_an_error_is_a_row(made: Any) -> None:
    row = failed_row(made.problem(2), "it broke", 1.5, problem_id="x", run="r")
    assert (row.id, row.verdict, row.status, row.reason) == ("2", "failed", "error", "it broke")


def test_ratio_without_an_interval() -> None:
    unknown = Interval(median=2.0, low=0.0, high=1e308)
    found = ratio(Interval(median=1.0, low=0.9, high=1.1), unknown)
    assert (found.median, found.high) == (0.5, 1e308)
    assert found.low == pytest.approx(0.0)
