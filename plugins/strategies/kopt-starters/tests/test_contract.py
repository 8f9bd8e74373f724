"""Starters keep the contract of strategies."""

from __future__ import annotations

from kopt.testing import StrategyContract
from kopt_starters import Starters


class TestStarters(StrategyContract):
    def plugin(self) -> Starters:
        return Starters(Starters.Options())


class TestOneStructure(StrategyContract):
    def plugin(self) -> Starters:
        return Starters(Starters.Options(operators=("sum",), structures=1))
