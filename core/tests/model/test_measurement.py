"""Which of several baselines is the fastest."""

from __future__ import annotations

from kopt.model.measurement import Interval, Measurement, fastest_of


def timed(latency: float, **speedup: float) -> Measurement:
    return Measurement(
        latency_ms=latency, workloads=(), protocol="search", noise=0.01,
        speedup={name: Interval(median=v, low=v, high=v) for name, v in speedup.items()},
    )  # fmt: skip


def test_ratios_of_pairs_decide_and_not_times_that_drift() -> None:
    measured = {
        "eager": timed(0.1687, eager=1.001),
        "compiled": timed(0.1710, eager=1.028),  # slower by its time, which another moment gave
        "tuned": timed(0.1690, eager=1.01),
    }
    assert fastest_of(measured) == "compiled"


def test_what_all_are_timed_beside_is_exactly_itself() -> None:
    measured = {"eager": timed(1.0, eager=1.05), "compiled": timed(1.0, eager=1.02)}
    assert fastest_of(measured) == "compiled"
    assert fastest_of({"eager": timed(1.0, eager=0.9), "slow": timed(0.9, eager=0.95)}) == "eager"


def test_times_decide_where_there_are_no_common_pairs() -> None:
    measured = {"eager": timed(2.0, eager=1.0), "compiled": timed(1.0, compiled=1.0)}
    assert fastest_of(measured) == "compiled"
    assert fastest_of({"one": timed(2.0, gone=3.0), "two": timed(1.0, gone=2.0)}) == "two"
    assert fastest_of({}) == ""
