"""References, opened in this process, and trials of candidates in their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kopt.model.device import DeviceKind
from kopt.model.problem import InputSpec, Problem, ReferenceSource
from kopt.testing.problems import function_problem
from kopt.testing.trials import Trials
from kopt_torch.reference import TorchReference

KERNELBENCH = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))

def get_inputs():
    return [torch.rand(32, 24)]

def get_init_inputs():
    return [24, 16]
"""


def spec(name: str = "x", *shape: int, **more: Any) -> InputSpec:
    return InputSpec(name=name, shape=shape or (6, 10), **more)


def a_problem(body: str, *inputs: InputSpec, **more: Any) -> Problem:
    """A problem whose reference is the function ``f``."""
    return function_problem(f"import torch\n\n{body}\n", "f", inputs or (spec(),), **more)


@pytest.fixture
def problem() -> Callable[..., Problem]:
    return a_problem


@pytest.fixture
def model() -> Problem:
    source = ReferenceSource(kind="kernelbench", source=KERNELBENCH, entry="Model")
    return Problem(name="model", format="kernelbench", reference=source)


@pytest.fixture
def opened() -> Callable[..., TorchReference]:
    """Return a function that opens a reference from its source."""

    def make(body: str | Problem, *inputs: InputSpec, **more: Any) -> TorchReference:
        given = body if isinstance(body, Problem) else a_problem(body, *inputs, **more)
        return TorchReference(given, "cpu")

    return make


_MOST_OPEN = 3


@pytest.fixture
def trials_on(tmp_path: Path) -> Iterator[Callable[[Problem, DeviceKind], Trials]]:
    """Return a function that opens a problem on a device, for one test."""
    with ExitStack() as stack:
        yield lambda problem, device: stack.enter_context(
            Trials(problem, tmp_path / "builds", device=device)
        )


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Problem], Trials]]:
    """Return a function that opens a problem for candidates in a process of their own."""
    cache = tmp_path_factory.mktemp("builds")
    opened: dict[str, Trials] = {}

    def open_once(problem: Problem) -> Trials:
        if problem.id not in opened:
            if len(opened) >= _MOST_OPEN:
                opened.pop(next(iter(opened))).close()
            opened[problem.id] = Trials(problem, cache)
        return opened[problem.id]

    yield open_once
    for each in opened.values():
        each.close()
