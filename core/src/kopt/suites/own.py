"""The suites whose problem files kopt brings along."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

from kopt.errors import ProblemError
from kopt.formats.native import problem_block, problem_from_toml
from kopt.model.problem import Problem
from kopt.suites.problem import Suite, SuiteProblem, by_workload

OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "table4": (
        "float16",
        ("matmul", "softmax", "layernorm", "rmsnorm", "cross_entropy", "reduce", "rotary"),
    ),
    "showcase": (
        "bfloat16",
        ("matrix_vector", "rms_norm", "max_pool_3d", "transposed_conv_3d", "depthwise_conv_2d"),
    ),
}
"""Suite to dtype and files; each workload of a file is a problem of its own."""


def own_suite(name: str) -> Suite:
    """Return one of kopt's own suites; KeyError for another name."""
    dtype, files = OWN[name]
    found = [problem for file in files for problem in by_workload(_read(name, file))]
    numbered = (
        SuiteProblem(id=str(number), name=problem.name, load=functools.partial(_given, problem))
        for number, problem in enumerate(found, start=1)
    )
    return Suite(name=name, dtype=dtype, problems=tuple(numbered))


def _given(problem: Problem) -> Problem:
    return problem


def _read(suite: str, name: str) -> Problem:
    """Read a file as if it were called ``NAME.py``: so it is no module that kopt could import."""
    place = resources.files("kopt.suites") / "problems" / suite / f"{name}.py.txt"
    text, path = place.read_text(encoding="utf-8"), Path(f"{name}.py")
    block = problem_block(text, path)
    if block is None:
        raise ProblemError(f"{path} of suite {suite} has no kopt-problem block; reinstall kopt")
    return problem_from_toml(block, path, path, text, name=name)
