"""A TOML table that is read key by key, so that a wrong or unknown key is named in the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kopt.errors import ProblemError
from kopt.formats.python_source import suggestion

T = TypeVar("T")
_WORDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "a list",
          dict: "a table"}  # fmt: skip


class Table:
    """One table of a file. Take every key, then ``finish``: what is left is unknown."""

    def __init__(self, data: Mapping[str, Any], file: str, name: str = "") -> None:
        """``name`` is the table's dotted name, empty for the file's top level."""
        self._left = dict(data)
        self._asked: list[str] = []
        self.file = file
        self.name = name

    def where(self, key: str) -> str:
        """Return how messages name a key: ``problem.toml: inputs.x.shape``."""
        return f"{self.file}: {self.name + '.' if self.name else ''}{key}"

    def take(self, key: str, kind: type[T], default: T | None = None) -> T | None:
        """Remove and return a value; ``default`` where it is absent. Raises ProblemError.

        An integer is good for a float; true and false are no numbers.
        """
        self._asked.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ProblemError(f"{self.where(key)} must be {_WORDS[kind]}, not {value!r}")
        return value

    def has(self, key: str, kind: type[object]) -> bool:
        """Whether there is a value of a type, which is left where it is."""
        return type(self._left.get(key)) is kind

    def require(self, key: str, kind: type[T]) -> T:
        """Remove and return a value that must be there. Raises ProblemError."""
        value = self.take(key, kind)
        if value is None:
            raise ProblemError(f"{self.where(key)} is missing; write {_WORDS[kind]}")
        return value

    def take_any(self, key: str) -> Any:
        """Remove and return a value of any type, None where it is absent."""
        self._asked.append(key)
        return self._left.pop(key, None)

    def table(self, key: str) -> Table:
        """Remove and return a sub-table; an empty one where it is absent."""
        data = self.take(key, dict, {})
        return Table(data or {}, self.file, self.where(key).removeprefix(f"{self.file}: "))

    def rest(self) -> dict[str, Any]:
        """Remove and return all that is left."""
        left, self._left = self._left, {}
        return left

    def known(self, extra: tuple[str, ...] = ()) -> list[str]:
        """Return the keys that were asked for, to suggest from."""
        return [*self._asked, *extra]

    def finish(self) -> None:
        """Raise ProblemError for the first key that nobody asked for."""
        for key in self._left:
            raise ProblemError(f"{self.where(key)}: unknown key{suggestion(key, self._asked)}")
