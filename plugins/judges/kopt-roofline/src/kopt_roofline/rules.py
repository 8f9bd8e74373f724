"""The rules and moves of this judge, read from the tables beside this file."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, TypeAdapter

from kopt.model.record import Record
from kopt_roofline.scope import Scope


def _alternatives(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Alternatives = Annotated[tuple[str, ...], BeforeValidator(_alternatives)]


class Rule(Record):
    """One row of rules.toml; its head says what each field means."""

    name: str
    applies_to: Literal["kernel", "call"]
    device: Literal["cuda", "cpu", "any"]
    when: tuple[str, ...] = Field(min_length=1)
    unless: tuple[str, ...] = ()
    evidence: tuple[str, ...] = Field(min_length=1)
    explanation: str
    gain: Alternatives = Field(min_length=1)
    moves: tuple[str, ...]
    risk: str = Field(min_length=1)
    source: str = Field(min_length=1)
    alone: bool = False
    fallback: bool = False

    def holds(self, scope: Scope) -> bool | None:
        """Say whether the rule holds; None: what is unknown would decide it."""
        told = [scope.number(each) for each in self.when]
        if any(value == 0 for value in told):
            return False
        if any(scope.number(each) for each in self.unless):
            return False
        return None if any(value is None for value in told) else True

    def lacks(self, scope: Scope) -> tuple[str, ...]:
        """Return the metrics and facts that would decide it."""
        found: dict[str, None] = {}
        for each in self.when:
            found |= dict.fromkeys(scope.unknown(each))
        return tuple(found)


class Rulebook(NamedTuple):
    """All rules in their order, and the names that they use."""

    rules: tuple[Rule, ...]
    values: dict[str, tuple[str, ...]]
    moves: dict[str, str]

    def of(self, device: str, applies_to: str) -> Iterator[tuple[int, Rule]]:
        """Yield the rules for a kind of device, with their places in the order."""
        for place, rule in enumerate(self.rules):
            if rule.applies_to == applies_to and rule.device in (device, "any"):
                yield place, rule


@functools.cache
def rulebook() -> Rulebook:
    """Return the rules that this distribution ships; ValidationError where a field is missing."""
    table = tomllib.loads(_read("rules.toml"))
    return Rulebook(
        rules=TypeAdapter(tuple[Rule, ...]).validate_python(table["rule"]),
        values=TypeAdapter(dict[str, Alternatives]).validate_python(table["values"]),
        moves=TypeAdapter(dict[str, str]).validate_python(tomllib.loads(_read("moves.toml"))),
    )


def _read(name: str) -> str:
    return files("kopt_roofline").joinpath(name).read_text(encoding="utf-8")
