"""Rotary embeddings: pairs of elements turned by angles whose cosines and sines are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kopt_starters.families.filling import FLOATS, filled, powers
from kopt_starters.families.positions import Element, Rows, positions
from kopt_starters.families.rotary_cuda import rotary_cuda
from kopt_starters.gpu import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.graph import Graph

_IDEA = "rotary: pairs read and written once"


class Turned(NamedTuple):
    """One result: x and its tables, and where in them the factors of a pair are."""

    x: str
    cosine: Element
    sine: Element
    interleaved: bool
    """Pairs are neighbours; else the halves of a row."""
    places: tuple[int, ...]
    """Factor, step and start of cosine and sine, for the first of a pair and for the second."""


class Rotary:
    """Kernels for a reference that turns one argument, or several alike."""

    name = "rotary"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel for a rotary embedding; empty for any other graph."""
        found = recognised(graph)
        if found is None or target.language not in ("triton", "cuda"):
            return []
        if target.language == "cuda":
            kernel = rotary_cuda(graph, found, _IDEA, target.device)
        else:
            kernel = _triton(graph, found)
        return [kernel] if kernel is not None else []


def _triton(graph: Graph, found: Sequence[Turned]) -> Candidate | None:
    shape = graph.results[0].shape
    pairs = shape[-1] // 2
    wide = 1 << (pairs - 1).bit_length()
    parts = [
        {"cosine": turned.cosine.kept, "sine": turned.sine.kept, "places": turned.places,
         "cosines": _width(graph, turned.cosine), "sines": _width(graph, turned.sine)}
        for turned in found
    ]  # fmt: skip
    knobs = {
        "ROWS": nearest(max(1, 1024 // wide), powers(1, max(1, 4096 // wide))[-5:]),
        "num_warps": nearest(4, [2, 4, 8]),
    }
    handed = [n for each in found for n in (each.x, each.cosine.name, each.sine.name)]
    return filled(
        "rotary_pairs.py.txt", graph, "rotary", _IDEA, handed, knobs, parts=parts,
        interleaved=found[0].interleaved, pairs=pairs, rank=len(shape),
        output=graph.results[0].dtype,
    )  # fmt: skip


def _width(graph: Graph, table: Element) -> int:
    tensor = graph.tensor(table.name)
    return tensor.shape[-1] if tensor is not None else 0


def recognised(graph: Graph) -> list[Turned] | None:
    """Return what each result turns; None where one is no rotary embedding."""
    dtypes = {tensor.dtype for node in graph.nodes for tensor in node.tensors}
    typed = dtypes <= FLOATS and len({result.dtype for result in graph.results}) == 1
    several = len(graph.results) > 1
    if not typed or (several and graph.call.structure != f"tuple:{len(graph.results)}"):
        return None
    if len({(len(result.shape), result.shape[-1:]) for result in graph.results}) != 1:
        return None
    rows = positions(graph)
    if not rows:
        return None
    found = [_turned(graph, each) for each in rows]
    known = [each for each in found if each is not None]
    if len(known) != len(found) or len({each.interleaved for each in known}) != 1:
        return None
    return known


def _turned(graph: Graph, rows: Rows) -> Turned | None:
    width = rows.shape[-1]
    if len(rows.tail) != 1 or width % 2 or not 2 <= len(rows.shape) <= 5:
        return None
    half = width // 2
    pairings: tuple[tuple[bool, Callable[[int], tuple[int, int]]], ...] = (
        (False, lambda i: (i, i + half)),
        (True, lambda i: (2 * i, 2 * i + 1)),
    )
    for interleaved, pair in pairings:
        found = _as_pairs(graph, rows, [pair(i) for i in range(half)], interleaved)
        if found is not None:
            return found
    return None


def _as_pairs(
    graph: Graph, rows: Rows, pairs: Sequence[tuple[int, int]], interleaved: bool
) -> Turned | None:
    places: list[int] = []
    names: set[tuple[str, Element, Element]] = set()
    for mine in (0, 1):
        terms = [_factors(graph, rows, pair[mine], pair[1 - mine]) for pair in pairs]
        known = [each for each in terms if each is not None]
        if len(known) != len(terms):
            return None
        names |= {(x, c._replace(position=0), s._replace(position=0)) for x, _, c, _, s in known}
        for sign, at in ((1, 2), (3, 4)):
            affine = _affine([each[at].position for each in known])  # type: ignore[union-attr]
            signs = {each[sign] for each in known}
            if affine is None or len(signs) != 1:
                return None
            places += [*signs, *affine]  # type: ignore[list-item]
    if len(names) != 1:
        return None
    ((x, cosine, sine),) = names
    return Turned(x, cosine, sine, interleaved, tuple(places))


def _factors(
    graph: Graph, rows: Rows, here: int, partner: int
) -> tuple[str, int, Element, int, Element] | None:
    """Return x, then sign and table element of x here, and of x at the partner's position."""
    full = tuple(range(len(rows.lead)))
    found: dict[int, tuple[str, int, Element]] = {}
    for sign, factors in rows.sums[here]:
        if len(factors) != 2:
            return None
        for x, table in (factors, factors[::-1]):
            tensor = graph.tensor(x.name)
            whole = tensor is not None and tensor.shape == rows.shape and x.kept == full
            if whole and x.position in (here, partner) and x.position not in found:
                found[x.position] = (x.name, sign, table)
                break
    if len(rows.sums[here]) != 2 or set(found) != {here, partner}:
        return None
    (name, sign, cosine), (other, flip, sine) = found[here], found[partner]
    return (name, sign, cosine, flip, sine) if name == other else None


def _affine(numbers: Sequence[int]) -> tuple[int, int] | None:
    """Return step and start of evenly spaced numbers."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    even = all(number == numbers[0] + i * step for i, number in enumerate(numbers))
    return (step, numbers[0]) if even else None
