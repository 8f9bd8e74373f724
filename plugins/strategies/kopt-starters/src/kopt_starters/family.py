"""What a family of starters is: it reads a graph and writes kernels for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.graph import Graph


class Family(Protocol):
    """Kernels for references of one kind, as matrix products with what follows them."""

    name: str
    """Also the value of the option ``families`` that asks for it."""

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels that compute the whole graph, the most promising first.

        Empty where it is not of this kind, or the target's language or device does not suit. A
        kernel may hold for the graph's own shapes alone; it then refuses others by raising
        ValueError.
        """
        ...
