"""The profiler keeps the contract of profilers."""

from __future__ import annotations

from kopt.testing import ProfilerContract
from kopt_perf import Perf


class TestPerf(ProfilerContract):
    def plugin(self) -> Perf:
        return Perf(Perf.Options(seconds=0.1))
