"""The settings of a kernel's knobs, and how far apart two of them are."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.candidate import Candidate, Knob, KnobValue

Setting = tuple[int, ...]
"""One value per knob, as positions among its choices."""


class Space:
    """All settings of the knobs that a candidate declares.

    Choices of a numeric knob are taken in the order of their size, so that neighbours in a space
    are neighbours in value; the choices of any other knob are all equally far apart. Knobs are
    ordered by name: a journal need not keep the order of declaration.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.names = tuple(sorted(candidate.knobs))
        self.choices = tuple(_ordered(candidate.knobs[name]) for name in self.names)
        self._numeric = tuple(all(map(_is_number, values)) for values in self.choices)

    @property
    def size(self) -> int:
        """Number of settings; 1 where there are no knobs."""
        return math.prod(len(values) for values in self.choices)

    def __iter__(self) -> Iterator[Setting]:
        return itertools.product(*(range(len(values)) for values in self.choices))

    def setting(self, candidate: Candidate) -> Setting | None:
        """Return where a candidate lies, or None where it declares other knobs or choices."""
        chosen = candidate.chosen
        if tuple(sorted(chosen)) != self.names:
            return None
        try:
            return tuple(
                values.index(chosen[name])
                for name, values in zip(self.names, self.choices, strict=True)
            )
        except ValueError:
            return None

    def values(self, setting: Setting) -> dict[str, KnobValue]:
        """Return the knob values of a setting."""
        return {
            name: values[at]
            for name, values, at in zip(self.names, self.choices, setting, strict=True)
        }

    def moves(self, origin: Setting) -> list[Setting]:
        """Return every setting that differs from ``origin`` in one knob, the nearest first."""
        found = [
            (*origin[:knob], at, *origin[knob + 1 :])
            for knob, values in enumerate(self.choices)
            for at in range(len(values))
            if at != origin[knob]
        ]
        return sorted(found, key=lambda setting: self.distance(origin, setting))

    def nearest_first(self, origin: Setting) -> list[Setting]:
        """Return all settings: those that change one knob of ``origin``, then two, and so on."""
        return sorted(self, key=lambda setting: self.distance(origin, setting))

    def distance(self, origin: Setting, setting: Setting) -> tuple[int, int, int, Setting]:
        """Return a sort key: changed knobs, sum of steps, position of the first changed knob."""
        steps = [self._steps(knob, origin[knob], at) for knob, at in enumerate(setting)]
        first = next((knob for knob, count in enumerate(steps) if count), 0)
        return sum(map(bool, steps)), sum(steps), first, setting

    def _steps(self, knob: int, start: int, end: int) -> int:
        return abs(start - end) if self._numeric[knob] else int(start != end)


def _is_number(value: KnobValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(knob: Knob) -> tuple[KnobValue, ...]:
    unique = tuple(dict.fromkeys(knob.choices))
    if all(map(_is_number, unique)):
        return tuple(sorted(unique, key=float))
    return unique
