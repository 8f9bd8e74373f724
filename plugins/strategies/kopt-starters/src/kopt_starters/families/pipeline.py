"""References that no family computes alone: pieces one after the other, each by one that can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.pipeline.algebra import averaged_first
from kopt_starters.pipeline.channels import ChannelReductions
from kopt_starters.pipeline.joining import Stage, joined
from kopt_starters.pipeline.pieces import cut
from kopt_starters.pipeline.pools import merged_pools
from kopt_starters.pipeline.tidying import tidied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.family import Family
    from kopt_starters.graph import Graph
    from kopt_starters.pipeline.pieces import Piece


_SMALL = 1 << 20
"""Bytes that are read and written faster than a kernel is launched."""
_SEVERAL = frozenset({"several", "share", "wait"})
"""Words in the idea of a candidate that begins more than one kernel, or clears memory first."""


_FASTER = (
    ("one read, programs of a row wait", "sweeps over tiles"),
    ("several programs a row", "second read from L2"),
)
"""Ways to reduce rows, and others that were faster where both were timed behind convolutions."""


class Pipeline:
    """Kernels of other families in order, where none of them computes the whole graph.

    What ``joining`` families compute it proposes apart too, as several kernels of the others.
    """

    name = "pipeline"

    def __init__(self, families: Sequence[Family], joining: Sequence[Family] = ()) -> None:
        self._families = tuple(families)
        self._joining = tuple(joining)

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return files of several kernels each; none where one family covers the whole graph."""
        plain = tidied(graph) if target.language == "triton" else None
        if plain is None or any(any(f.propose(graph, target)) for f in self._families):
            return []
        most = (*self._families, ChannelReductions())
        if not any(any(f.propose(graph, target)) for f in self._joining):
            most = (*self._joining, *most)
        swapped = averaged_first(plain)
        first = [] if swapped is None else self._files(merged_pools(swapped), most, target)[:2]
        plain = merged_pools(plain)
        found = self._files(plain, most, target)
        apart = self._files(plain, self._families, target)[:1]
        order = [*first, *found[:1], *apart, *found[1:]]
        return list({each.structure: each for each in order}.values())

    @staticmethod
    def _files(graph: Graph, families: Sequence[Family], target: Target) -> list[Candidate]:
        pieces = cut(graph, families, target)
        if pieces is None:
            return []
        try:
            return [joined(graph, stages) for stages in _stagings(pieces)]
        except NotCoveredError:
            return []


def _stagings(pieces: Sequence[Piece]) -> Iterator[list[Stage]]:
    """Yield the best candidate of each piece, then others of one piece at a time.

    A second kernel for a norm or a pooling was faster more often than one for what comes before.
    """
    ranked = [_ranked(piece) for piece in pieces]
    first = [Stage(p, next(iter(r), None)) for p, r in zip(pieces, ranked, strict=True)]
    yield first
    order = sorted(range(len(pieces)), key=lambda at: (pieces[at].heavy, -pieces[at].traffic))
    for other in (1, 2):
        for at in order:
            if len(ranked[at]) > other:
                yield [*first[:at], Stage(pieces[at], ranked[at][other]), *first[at + 1 :]]


def _ranked(piece: Piece) -> list[Candidate]:
    """Return a piece's candidates, the most promising in a pipeline first."""
    found = list(piece.candidates)
    if piece.traffic < _SMALL:
        found.sort(key=lambda each: bool(_SEVERAL & {*each.idea.split()}))
    for slow, fast in _FASTER:
        faster = [each for each in found if fast in each.idea]
        if found and slow in found[0].idea and faster:
            found.remove(faster[0])
            found.insert(0, faster[0])
    return found
