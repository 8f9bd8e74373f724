"""Why there is no kernel for a reference: the operators that none of the families knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.pipeline.pieces import piece_of
from kopt_starters.pipeline.tidying import tidied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.device import Target
    from kopt_starters.family import Family
    from kopt_starters.graph import Graph

_LONGEST = 3
"""Operators of a piece that is looked for around one: some are known in company only."""


def unmatched(graph: Graph, families: Sequence[Family], target: Target) -> list[str]:
    """Return the operators that no family writes a kernel for, alone or with a neighbour.

    In the order of their first appearance, by name without namespace, as ``median.dim``. Empty
    where each of them is known, and only this chain of them is not.
    """
    graph = tidied(graph) or graph
    names: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        names.setdefault(f"{node.operator}.{node.overload}", at)
    return [name for name, at in names.items() if not _known(graph, at, families, target)]


def _known(graph: Graph, at: int, families: Sequence[Family], target: Target) -> bool:
    ranges = (
        (first, first + length)
        for length in range(1, _LONGEST + 1)
        for first in range(max(0, at - length + 1), at + 1)
        if first + length <= len(graph.nodes)
    )
    return any(piece_of(graph, *each, families, target) is not None for each in ranges)
