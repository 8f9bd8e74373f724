"""A folder of problems as a suite: somebody's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kopt.errors import ConfigError, ProblemError
from kopt.model.problem import Problem
from kopt.optimize import known_problem
from kopt.suites.problem import Suite, SuiteProblem, by_workload

DTYPE = "mixed"
"""What such a suite says of its dtype: each problem has its own."""


def folder_suite(folder: Path, *, each_workload: bool = False) -> Suite:
    """Return the problems in a folder, in the order of their names. Raises ConfigError.

    Folders with a problem.toml and Python files that some format knows; one that cannot be read is
    a problem whose ``load`` says why. Nothing below such folders is looked at.

    :param each_workload: whether each workload of a problem is a problem of its own.
    """
    if (folder / "problem.toml").is_file():
        raise ConfigError(
            f"{folder} is one problem: `kopt optimize {folder}`, or name the folder that it lies in"
        )
    found = [pair for place in _places(folder) for pair in _problems(place, each_workload)]
    if not found:
        raise ConfigError(
            f"{folder} has no problem: no folder with a problem.toml, and no Python file that kopt "
            "knows as one"
        )
    numbered = (
        SuiteProblem(id=str(number), name=name, load=_Loaded(problem))
        for number, (name, problem) in enumerate(found, start=1)
    )
    return Suite(name=folder.resolve().name, dtype=DTYPE, problems=tuple(numbered))


class _Loaded:
    """Gives a problem that was read already, or raises what reading it raised."""

    def __init__(self, found: Problem | ProblemError) -> None:
        self._found = found

    def __call__(self) -> Problem:
        if isinstance(self._found, ProblemError):
            raise self._found
        return self._found


def _places(folder: Path) -> Iterator[Path]:
    try:
        places = sorted(folder.iterdir(), key=lambda place: place.name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error}") from error
    for place in places:
        hidden = place.name.startswith((".", "_"))
        if not hidden and ((place / "problem.toml").is_file() or place.suffix == ".py"):
            yield place


def _problems(place: Path, each_workload: bool) -> Iterator[tuple[str, Problem | ProblemError]]:
    try:
        problem = known_problem(place)
    except ProblemError as error:
        yield place.stem, error
        return
    if problem is None:
        return
    for part in by_workload(problem) if each_workload else [problem]:
        yield part.name, part
