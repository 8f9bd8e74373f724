"""The vendor's library as a candidate: cuDNN and cuBLAS, with layouts and endings of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen import NotCoveredError
from kopt_starters.pipeline.joining import Stage, joined
from kopt_starters.pipeline.pieces import cut
from kopt_starters.pipeline.tidying import tidied
from kopt_starters.vendor.convolutions import convolutions
from kopt_starters.vendor.products import products

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.family import Family
    from kopt_starters.graph import Graph
    from kopt_starters.pipeline.pieces import Piece


class Vendor:
    """Candidates of language ``torch`` whose heavy operator is the library's; all else is fused.

    What they are is said by their idea, which begins with ``vendor:``.
    """

    name = "vendor"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return candidates for one convolution or product, and what follows it by element."""
        if target.language not in ("triton", "cuda") or target.device.kind != "cuda":
            return []
        try:
            found = [*convolutions(graph), *products(graph)]
        except NotCoveredError:
            return []
        return [candidate for candidate in found if candidate is not None]


class VendorPipeline:
    """A convolution by the vendor's library, and kernels of other families for what follows it."""

    name = "pipeline"

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = tuple(families)

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return one file, of language ``torch``; none where one family covers the whole graph."""
        convolves = any(node.operator == "convolution" for node in graph.nodes)
        if target.language != "triton" or not convolves or target.device.kind != "cuda":
            return []
        plain, families = tidied(graph), (Vendor(), *self._families)
        if plain is None or any(any(f.propose(graph, target)) for f in families):
            return []
        try:
            return self._file(plain, cut(plain, families, target) or [])
        except NotCoveredError:
            return []

    def _file(self, graph: Graph, pieces: Sequence[Piece]) -> list[Candidate]:
        stages = [Stage(piece, next(iter(piece.candidates), None)) for piece in pieces]
        if not any(s.candidate and s.candidate.language == "torch" for s in stages):
            return []
        file = joined(graph, stages)
        source = file.source.replace("# /// kopt\n", '# /// kopt\n# language = "torch"\n', 1)
        idea = f"vendor: {file.idea.replace('vendor: ', '')}"
        return [parse_kernel(source, "torch", strategy="starters", idea=idea)]
