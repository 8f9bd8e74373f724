"""Medians with bootstrap confidence intervals, and how intervals combine over workloads."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from kopt.model.measurement import Interval

RESAMPLES = 1000
CONFIDENCE = 0.95


def median_interval(values: Sequence[float], rng: random.Random) -> Interval:
    """Return the median with its percentile bootstrap interval (Efron & Tibshirani 1993, ch. 13).

    A single value has no interval: low and high are 0 and the largest float, so nothing follows.
    """
    median = statistics.median(values)
    if len(values) < 2:
        return Interval(median=median, low=0.0, high=1e308)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = (1.0 - CONFIDENCE) / 2.0
    low = medians[int(tail * RESAMPLES)]
    high = medians[min(RESAMPLES - 1, int((1.0 - tail) * RESAMPLES))]
    return Interval(median=median, low=low, high=high)


def combined(intervals: Sequence[tuple[float, Interval]]) -> Interval:
    """Return the weighted geometric mean of (weight, interval); its ends combine the ends."""
    total = sum(weight for weight, _ in intervals)

    def mean(values: Sequence[tuple[float, float]]) -> float:
        if any(value <= 0.0 for _, value in values):
            return 0.0
        return math.exp(sum(weight * math.log(value) for weight, value in values) / total)

    return Interval(
        median=mean([(w, i.median) for w, i in intervals]),
        low=mean([(w, i.low) for w, i in intervals]),
        high=mean([(w, i.high) for w, i in intervals]),
    )
