"""What a starter operator consists of: a pattern, and structures (templates) with their knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt.model.candidate import Knob
    from kopt.model.device import Device
    from kopt_starters.expression import Expression, Shape

Arguments = Mapping[str, "Shape"]
"""The shapes of the reference's tensor arguments, by name."""


@dataclass(frozen=True)
class Match:
    """An operator found in a reference: on what, over which dimensions, with which parameters."""

    x: str
    first: int
    """First of the adjacent dimensions of ``x`` that are reduced, counted from the front."""
    last: int
    """Last of them, included."""
    weight: str | None = None
    bias: str | None = None
    eps: float | None = None
    keep: bool = False
    """Whether the reduced dimensions stay, with extent one (``sum`` only)."""


@dataclass(frozen=True)
class Layout:
    """A tensor as a kernel sees it: ``outer`` x ``count`` (reduced) x ``inner`` elements."""

    outer: int
    count: int
    inner: int
    rowwise: bool
    """The reduced dimensions are the last ones; ``inner`` is 1 whatever the shape."""
    itemsize: int
    """Bytes of an element of ``x``."""
    device: Device


@dataclass(frozen=True)
class Structure:
    """One way to compute an operator: a template, when it suits, and the knobs it declares."""

    language: str
    template: str
    """File in ``kernels/``."""
    idea: str
    suits: Callable[[Layout], bool]
    knobs: Callable[[Layout], dict[str, Knob]]


@dataclass(frozen=True)
class Operator:
    """An operator that starters know."""

    name: str
    """Also the entry point of its kernels."""
    parameters: tuple[str, ...]
    """What its kernels take beside x, out and the extents: ``weight``, ``bias``, ``eps``."""
    match: Callable[[Expression, Arguments], Match | None]
    structures: tuple[Structure, ...]
    """The most promising first."""

    def fitting(self, language: str, layout: Layout) -> Iterator[Structure]:
        """Yield the structures in ``language`` that suit a layout."""
        for structure in self.structures:
            if structure.language == language and structure.suits(layout):
                yield structure
