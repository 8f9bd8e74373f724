"""A problem of the selftest in the form that rivals take: a file with Model, get_inputs and get_init_inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.optimize import load_problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kopt.model.problem import InputSpec

_TAIL = '''

import torch

rival_reference = {entry}
INPUTS = {names!r}
DTYPES = {dtypes!r}
MUTATES = {mutates!r}
SIZES = {sizes!r}


class Model(torch.nn.Module):
    """The reference as a module."""

    def forward(self, *inputs):
        """Compute it."""
        return rival_reference(*inputs)


def get_inputs({parameters}):
    """Draw the arguments from torch's global generator."""
    return [{draws}]


def get_init_inputs():
    """Return the arguments of Model: none."""
    return []
'''


class Task:
    """One problem, as text for a rival's process. Raises ProblemError where kopt cannot read it."""

    def __init__(self, folder: Path) -> None:
        problem = load_problem(folder)
        self.name = problem.name
        self.entry = problem.reference.entry
        self.names = [spec.name for spec in problem.inputs]
        self.sizes = dict(problem.workloads[0].sizes)
        self.reference = problem.reference.source
        self.source = self.reference + _TAIL.format(
            entry=self.entry, names=self.names, sizes=self.sizes, mutates=list(problem.mutates),
            dtypes={spec.name: spec.dtype for spec in problem.inputs},
            parameters=", ".join(f"{name}={value}" for name, value in self.sizes.items()),
            draws=", ".join(_draw(spec, self.sizes) for spec in problem.inputs),
        )  # fmt: skip


def _draw(spec: InputSpec, sizes: Mapping[str, int]) -> str:
    """Return the expression that a rival's user would write for an input."""
    if spec.shape is None:
        return repr(spec.value)
    shape = f"({', '.join(map(str, spec.shape))},)"
    end = spec.high_at(sizes)
    low, high = spec.low or 0, 1 if end is None else end
    drawn = {
        "normal": f"torch.randn({shape})",
        "uniform": f"torch.rand({shape}) * {high - low} + {low}",
        "integers": f"torch.randint({int(low)}, {int(high)}, {shape})",
        "bernoulli": f"(torch.rand({shape}) < {high})",
        "zeros": f"torch.zeros({shape})",
        "ones": f"torch.ones({shape})",
    }[spec.distribution]
    return f"({drawn}).to(torch.{spec.dtype})"
