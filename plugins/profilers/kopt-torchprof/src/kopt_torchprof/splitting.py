"""Finding the single calls in a trace of several, by the sequence of kernels that they launch."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.probe import KernelRun, Timeline

_MOST_SEARCHED = 2000
"""Kernels of a trace in which calls of different lengths are looked for: time grows with the cube."""


def calls_of(timeline: Timeline) -> list[tuple[KernelRun, ...]]:
    """Return the calls that launch the most frequent sequence, each with its kernels.

    Kernels are the same where name, grid and block are. Fewer than ``timeline.calls`` come back
    where the others launched something else, and none where no sequence stands out.
    """
    text, calls = _letters(timeline.kernels), timeline.calls
    length, rest = divmod(len(text), calls)
    even = length > 0 and rest == 0
    pieces = [text[at : at + length] for at in range(0, len(text), length)] if even else []
    usual, seen = max(Counter(pieces).items(), key=itemgetter(1), default=("", 0))
    if seen < calls and (found := _most_covering(text, calls)) is not None:
        length = len(found)
        starts = _places(text, found)[-calls:]  # more may lie within a first, unusual call
    elif seen == calls or seen > 1:
        starts = [number * length for number, piece in enumerate(pieces) if piece == usual]
    else:
        starts = []
    return [timeline.kernels[at : at + length] for at in starts]


def _letters(kernels: Sequence[KernelRun]) -> str:
    """Return a string with a character for each kernel, the same for the same ones."""
    known: dict[object, str] = {}
    return "".join(
        known.setdefault((run.name, run.grid, run.block), chr(len(known))) for run in kernels
    )


def _most_covering(text: str, calls: int) -> str | None:
    """Return the sequence that more than half of the calls could be, and that covers most kernels.

    None where none covers more than half of them. Of those that cover the same it is the shortest,
    which occurs most often, and then the one that occurs first.
    """
    if len(text) > _MOST_SEARCHED:
        return None
    best, covered = None, len(text) // 2
    for length in range(1, 2 * len(text) // calls + 1):
        for sequence, count in _apart(text, length).items():
            covers = min(count, calls) * length
            if count > calls / 2 and covers > covered:
                best, covered = sequence, covers
    return best


def _apart(text: str, length: int) -> dict[str, int]:
    """Return how often each sequence of a length occurs without overlapping itself."""
    counts: dict[str, int] = {}
    free_from: dict[str, int] = {}
    for at in range(len(text) - length + 1):
        sequence = text[at : at + length]
        if at >= free_from.get(sequence, 0):
            counts[sequence] = counts.get(sequence, 0) + 1
            free_from[sequence] = at + length
    return counts


def _places(text: str, sequence: str) -> list[int]:
    found, at = [], text.find(sequence)
    while at >= 0:
        found.append(at)
        at = text.find(sequence, at + len(sequence))
    return found
