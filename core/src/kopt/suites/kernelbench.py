"""KernelBench's levels from a checkout of it, as they are or derived in another dtype."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from kopt.errors import ConfigError
from kopt.model.problem import Problem
from kopt.optimize import load_problem
from kopt.suites.problem import Suite, SuiteProblem

_FILE = re.compile(r"(\d+)_.*\.py")
DTYPES = ("float32", "bfloat16")
_CAST = """

# What follows was added by kopt: parameters and inputs in {dtype}, as a user would have them with
# model.to(torch.{dtype}) and the same of every tensor of floats that is passed.
import torch as _kopt_torch

_kopt_make_model, _kopt_draw_inputs = Model.__init__, get_inputs


def _kopt_cast(value):
    if isinstance(value, _kopt_torch.Tensor) and value.is_floating_point():
        return value.to(_kopt_torch.{dtype})
    if isinstance(value, (list, tuple)):
        return type(value)(_kopt_cast(item) for item in value)
    if isinstance(value, dict):
        return {{key: _kopt_cast(item) for key, item in value.items()}}
    return value


def _kopt_init(self, *arguments, **keywords):
    _kopt_make_model(self, *arguments, **keywords)
    self.to(_kopt_torch.{dtype})


Model.__init__ = _kopt_init


def get_inputs():
    return _kopt_cast(_kopt_draw_inputs())
"""


def kernelbench_suite(root: Path, level: int, dtype: str = "float32") -> Suite:
    """Return a level of the KernelBench checkout at ``root``. Raises ConfigError.

    :param root: the checkout, with ``KernelBench/levelN/NUMBER_NAME.py`` in it.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"--dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    folder = _folder(root, level)
    numbered = [(m, path) for path in folder.iterdir() if (m := _FILE.fullmatch(path.name))]
    files = sorted(((int(m[1]), path) for m, path in numbered), key=lambda each: each[0])
    numbers = [number for number, _ in files]
    if doubled := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise ConfigError(f"{folder} has more than one file with number {doubled[0]}; remove one")
    if not files:
        raise ConfigError(f"{folder} has no file NUMBER_NAME.py; is it a level of KernelBench?")
    derived = "" if dtype == "float32" else f"inputs and parameters cast to {dtype}"
    return Suite(
        name=f"kernelbench-level{level}", dtype=dtype,
        problems=tuple(
            SuiteProblem(str(number), path.stem, functools.partial(_load, path, dtype), derived)
            for number, path in files
        ),
    )  # fmt: skip


def _folder(root: Path, level: int) -> Path:
    places = [root / "KernelBench" / f"level{level}", root / f"level{level}"]
    for place in places:
        if place.is_dir():
            return place
    raise ConfigError(
        f"--root {root}: there is no {places[0].relative_to(root)} in it; give the folder of a checkout "
        "of github.com/ScalingIntelligence/KernelBench"
    )


def _load(path: Path, dtype: str) -> Problem:
    problem = load_problem(path)
    return problem if dtype == "float32" else derived_problem(problem, dtype)


def derived_problem(problem: Problem, dtype: str) -> Problem:
    """Return a KernelBench problem whose parameters and inputs are cast to ``dtype``.

    The file's own text is kept and something added below it. Tensors that the module has neither
    as a parameter nor as a buffer stay as they are, and so do integers.
    """
    source = problem.reference.source.rstrip("\n") + "\n" + _CAST.format(dtype=dtype)
    reference = problem.reference.model_copy(update={"source": source})
    return problem.model_copy(update={"reference": reference})
