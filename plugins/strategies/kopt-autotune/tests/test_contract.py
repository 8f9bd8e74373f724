"""Autotune keeps the contract of strategies."""

from __future__ import annotations

from kopt.testing import StrategyContract
from kopt_autotune import Autotune


class TestSweeping(StrategyContract):
    def plugin(self) -> Autotune:
        return Autotune(Autotune.Options())


class TestSampling(StrategyContract):
    def plugin(self) -> Autotune:
        return Autotune(Autotune.Options(max_sweep=1, batch=2, seed=3))
