"""Intervals: they cover what they claim to cover, and combine by weight."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.model.measurement import Interval
from kopt.stages.intervals import combined, median_interval

times = st.floats(0.001, 1000.0)


@given(st.lists(times, min_size=2, max_size=30), st.integers(0, 99))
def test_the_median_lies_in_its_interval_and_that_within_the_samples(values, seed):
    found = median_interval(values, random.Random(seed))
    assert found.median == statistics.median(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


@given(st.lists(times, min_size=2, max_size=30), st.integers(0, 99))
def test_the_interval_follows_from_samples_and_seed(values, seed):
    first, again = (median_interval(values, random.Random(seed)) for _ in range(2))
    assert first == again


def test_equal_samples_leave_no_doubt():
    assert median_interval([2.0] * 9, random.Random(0)) == Interval(median=2.0, low=2.0, high=2.0)


def test_a_single_sample_proves_nothing():
    found = median_interval([3.0], random.Random(0))
    assert (found.median, found.low) == (3.0, 0.0)
    assert found.high > 1e300
    assert math.isfinite(found.high)


@pytest.mark.parametrize("samples", [9, 25])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.gauss(1.0, 0.05),
        lambda rng: 1.0 + rng.expovariate(10.0) - math.log(2) / 10.0,
        lambda rng: rng.gauss(1.0, 0.02) + (0.5 if rng.random() < 0.1 else 0.0),
    ],
    ids=["normal", "skewed", "with outliers"],
)
def test_the_interval_covers_the_true_median_as_often_as_it_says(draw, samples):
    """95 % by name; the percentile bootstrap of a median is known to fall a little short."""
    truth = statistics.median(draw(random.Random(f"truth {i}")) for i in range(20_001))
    hits = 0
    rounds = 300
    for number in range(rounds):
        rng = random.Random(number)
        found = median_interval([draw(rng) for _ in range(samples)], rng)
        hits += found.low <= truth <= found.high
    assert 0.90 <= hits / rounds <= 0.99


def test_more_samples_narrow_it():
    def width(count: int) -> float:
        rng = random.Random(5)
        found = median_interval([rng.gauss(1.0, 0.1) for _ in range(count)], rng)
        return found.high - found.low

    assert width(400) < width(50) < width(9)


def test_one_outlier_moves_nothing():
    rng = random.Random(1)
    values = [1.0 + 0.001 * rng.random() for _ in range(25)]
    found = median_interval([*values, 50.0], random.Random(2))
    assert found.high < 1.01


# --- over workloads ---


def interval(median, low, high):
    return Interval(median=median, low=low, high=high)


def test_one_workload_is_itself():
    found = combined([(3.0, interval(2.0, 1.5, 2.5))])
    assert found.median == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(1.5), pytest.approx(2.5))


def test_workloads_combine_as_a_geometric_mean():
    found = combined([(1.0, interval(4.0, 2.0, 8.0)), (1.0, interval(1.0, 0.5, 2.0))])
    assert (found.median, found.low, found.high) == tuple(
        pytest.approx(value) for value in (2.0, 1.0, 4.0)
    )


def test_weights_count():
    found = combined([(3.0, interval(2.0, 2.0, 2.0)), (1.0, interval(16.0, 16.0, 16.0))])
    assert found.median == pytest.approx((2.0**3 * 16.0) ** 0.25)


@given(st.lists(st.tuples(st.floats(0.1, 10.0), times), min_size=1, max_size=6), times)
def test_only_the_ratio_of_weights_counts_and_the_mean_lies_between(pairs, scale):
    items = [(weight, interval(value, value, value)) for weight, value in pairs]
    found = combined(items)
    again = combined([(weight * scale, value) for weight, value in items])
    assert again.median == pytest.approx(found.median)
    values = [value for _, value in pairs]
    assert min(values) * (1 - 1e-9) <= found.median <= max(values) * (1 + 1e-9)


def test_what_is_unknown_below_stays_unknown():
    unknown = median_interval([3.0], random.Random(0))
    found = combined([(1.0, unknown), (1.0, interval(2.0, 1.9, 2.1))])
    assert found.low == 0.0
    assert found.median == pytest.approx(6.0**0.5)
    assert math.isfinite(found.high)
