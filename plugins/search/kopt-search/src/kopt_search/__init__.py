"""Search policies for kopt: which candidates the next round starts from, and when to give up."""

from __future__ import annotations

from kopt_search.beam import Beam
from kopt_search.greedy import Greedy

__all__ = ["Beam", "Greedy"]
