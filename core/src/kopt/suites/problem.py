"""What a suite consists of: named problems that are read when their turn comes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kopt.errors import ConfigError
from kopt.model.problem import PRECISIONS, Problem
from kopt.optimize import with_precision

_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


@dataclass(frozen=True)
class SuiteProblem:
    """One problem of a suite."""

    id: str
    """Its number in the suite."""
    name: str
    load: Callable[[], Problem]
    """Reads it; raises ProblemError."""
    derived: str = ""
    """What was changed in its source, in words; empty where it is as it was found."""


@dataclass(frozen=True)
class Suite:
    """Problems in the order in which they are run."""

    name: str
    """As ``kernelbench-level1``."""
    dtype: str
    """Of its inputs and parameters, as ``float32``."""
    problems: tuple[SuiteProblem, ...]

    def in_precision(self, precision: str | None) -> Suite:
        """Return the suite with a float32 arithmetic in place of its problems' own; None: as it is.

        Raises ConfigError for another than ``reference``, ``strict`` and ``tf32``.
        """
        if precision is None:
            return self
        if precision not in PRECISIONS:
            raise ConfigError(f"--precision {precision!r}: must be one of {', '.join(PRECISIONS)}")
        problems = (
            replace(each, load=functools.partial(_loaded, each.load, precision))
            for each in self.problems
        )
        return replace(self, problems=tuple(problems))

    def chosen(self, numbers: Sequence[int] | None) -> tuple[SuiteProblem, ...]:
        """Return the problems of these numbers, in the suite's order; None: all.

        Raises ConfigError for a number that the suite does not have.
        """
        if numbers is None:
            return self.problems
        known = [problem.id for problem in self.problems]
        wanted = {str(number) for number in numbers}
        if unknown := sorted(wanted - set(known), key=int):
            raise ConfigError(
                f"suite {self.name} has no problem {', '.join(unknown)}; it has {spelled(known)}"
            )
        return tuple(problem for problem in self.problems if problem.id in wanted)


def _loaded(load: Callable[[], Problem], precision: str) -> Problem:
    return with_precision(load(), precision)


def by_workload(problem: Problem) -> list[Problem]:
    """Return one problem per workload, each named after both."""
    if len(problem.workloads) == 1:
        return [problem]
    return [
        problem.model_copy(update={"name": f"{problem.name}-{each.name}", "workloads": (each,)})
        for each in problem.workloads
    ]


def parse_ids(text: str) -> tuple[int, ...]:
    """Return the numbers that ``1-3,7`` names, ascending, each once. Raises ConfigError."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"{text!r}: {part.strip()!r} is neither a number nor a range; write 1-3,7"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(
                f"{text!r}: {part.strip()!r} ends before it begins; write {last}-{first}"
            )
        if last - first > 100_000:
            raise ConfigError(f"{text!r}: {part.strip()!r} names more problems than any suite has")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def spelled(ids: Sequence[str]) -> str:
    """Return numbers as ``1-3,7``: what parse_ids reads."""
    numbers = sorted({int(each) for each in ids})
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
