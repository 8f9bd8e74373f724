"""Both policies keep the contract of searches."""

from __future__ import annotations

from kopt.testing import SearchContract
from kopt_search import Beam, Greedy


class TestBeam(SearchContract):
    def plugin(self) -> Beam:
        return Beam(Beam.Options(width=2))


class TestGreedy(SearchContract):
    def plugin(self) -> Greedy:
        return Greedy(Greedy.Options(patience=100))
