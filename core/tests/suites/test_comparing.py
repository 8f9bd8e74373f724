"""Two records beside each other."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.errors import ConfigError
from kopt.suites.comparing import compare
from kopt.testing.records import cpu, gpu


def test_speedups_are_divided(made: Any) -> None:
    a = made.record([made.row(1, best=4.0), made.row(2, best=1.0), made.row(3, best=2.0)])
    b = made.record([made.row(1, best=2.0), made.row(2, best=2.0), made.row(3, best=2.02)])
    found = compare(a, b, "best")
    assert [row.winner for row in found.rows] == ["A", "B", "tie"]
    assert [row.ratio.median for row in found.rows] == pytest.approx([2.0, 0.5, 2.0 / 2.02])
    # Both ends are two per cent from their medians.
    assert found.rows[0].ratio.low == pytest.approx(2.0 * 0.98 / 1.02)
    assert found.geomean == pytest.approx((2.0 * 0.5 * 2.0 / 2.02) ** (1 / 3))
    assert (found.a_wins, found.b_wins, found.ties) == (1, 1, 1)
    assert found.same_device
    assert found.rows[0].a_ms == 0.25
    assert found.differing == ()


def test_only_common_problems_count(made: Any) -> None:
    a = made.record([made.row(1, best=3.0), made.row(2, best=9.0), made.row(3, "failed")])
    b = made.record([made.row(1, best=1.0), made.row(2, "failed"), made.row(3, best=5.0)])
    found = compare(a, b, "best")
    assert [row.id for row in found.rows] == ["1"]
    assert found.geomean == pytest.approx(3.0)
    assert (found.only_a, found.only_b) == (("2",), ("3",))


def test_times_of_two_devices_are_not_compared(made: Any) -> None:
    a = made.record([made.row(1, best=3.0)], device=cpu())
    b = made.record([made.row(1, best=1.0)], device=gpu())
    found = compare(a, b, "best")
    assert not found.same_device
    assert (found.rows[0].a_ms, found.rows[0].b_ms) == (None, None)
    assert "device: test cpu | test gpu" in found.differing


def test_another_source_is_said(made: Any) -> None:
    a = made.record([made.row(1, best=3.0)])
    other = made.row(1, best=3.0).model_copy(update={"problem_id": "other"})
    assert not compare(a, made.record([other]), "best").rows[0].same_problem
    assert compare(a, a, "best").rows[0].same_problem


def test_what_cannot_be_compared_is_refused(made: Any) -> None:
    a = made.record([made.row(1, best=3.0)])
    with pytest.raises(ConfigError, match="two suites"):
        compare(a, made.record([made.row(1, best=3.0)], suite="other"), "best")
    with pytest.raises(ConfigError, match="no problem has a speedup over eager in both"):
        compare(a, a, "eager")
