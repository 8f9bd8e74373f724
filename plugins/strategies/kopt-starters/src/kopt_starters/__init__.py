"""A strategy that proposes hand-written kernels, with knobs, for operators that it recognises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

import kopt
from kopt_starters.operators import OPERATORS
from kopt_starters.recognition import recognise
from kopt_starters.rendering import render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem, Signature

__all__ = ["Starters"]

OperatorName = Literal["layer_norm", "rms_norm", "softmax", "sum"]


class Starters:
    """Opens a run with one kernel per structure that suits the operator, its shape and the device."""

    class Options(kopt.Options):
        """What may be proposed."""

        operators: tuple[OperatorName, ...] = Field(
            default=("layer_norm", "rms_norm", "softmax", "sum"), min_length=1
        )
        """The operators to look for."""
        structures: int = Field(default=4, gt=0)
        """Structures to propose at most, the most promising first."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @kopt.hookimpl
    def kopt_propose(
        self, problem: Problem, signature: Signature, target: Target, parent: Evaluation | None
    ) -> Iterable[Candidate]:
        """Propose starting kernels in the first round; nothing for what is not recognised."""
        if parent is not None or problem.mutates:
            return []
        operators = [found for found in OPERATORS if found.name in self.options.operators]
        task = recognise(signature, operators)
        if task is None:
            return []
        fitting = task.operator.fitting(target.language, task.layout(target.device))
        rendered = (render(structure, task, target.device) for structure in fitting)
        return [kernel for kernel in rendered if kernel is not None][: self.options.structures]
