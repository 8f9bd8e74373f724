"""Names with their values as one rule sees them: metrics, facts and values made of both."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterable, Iterator, Mapping

from kopt.errors import ExpressionError
from kopt.model.expressions import evaluate


@functools.lru_cache(maxsize=4096)
def names_in(text: str) -> tuple[str, ...]:
    """Return the names that an expression reads, in order; SyntaxError where it is none.

    A called function's name (``min``) is not among them.
    """
    tree = ast.parse(text, mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys(node.id for node in names))


class Scope(Mapping[str, float]):
    """What is known of a kernel or a call, looked up by name.

    :param known: metrics and facts.
    :param values: names for expressions over these and each other, each with its alternatives.
    """

    def __init__(self, known: Mapping[str, float], values: Mapping[str, tuple[str, ...]]) -> None:
        self._known = known
        self._values = values
        self._made: dict[str, float | None] = {}

    def __getitem__(self, name: str) -> float:
        if name in self._known:
            return self._known[name]
        if name not in self._made:
            self._made[name] = None  # while it is being made: it cannot need itself
            self._made[name] = self.first(self._values.get(name, ()))
        value = self._made[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys([*self._known, *self._values])
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def first(self, alternatives: Iterable[str]) -> float | None:
        """Return the first alternative's value whose names are all known; None: there is none."""
        return next((v for v in map(self.number, alternatives) if v is not None), None)

    def number(self, text: str) -> float | None:
        """Return an expression's value; None where a name is unknown or it has no finite value."""
        if not all(name in self for name in names_in(text)):
            return None
        try:
            value = float(evaluate(text, self))
        except (ExpressionError, OverflowError):
            return None
        return value if math.isfinite(value) else None

    def unknown(self, text: str) -> tuple[str, ...]:
        """Return the metrics and facts without which an expression has no value.

        Of a value with alternatives those of the first one are named: it is the one that says most.
        """
        found: dict[str, None] = {}
        for name in names_in(text):
            if name in self:
                continue
            alternatives = self._values.get(name)
            found |= dict.fromkeys(self.unknown(alternatives[0]) if alternatives else (name,))
        return tuple(found)
