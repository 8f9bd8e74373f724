"""A profiler for kopt on Linux: what perf counts of a call on the CPU."""

from __future__ import annotations

from kopt_perf.profiler import Perf

__all__ = ["Perf"]
