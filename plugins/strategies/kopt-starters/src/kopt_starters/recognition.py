"""Finds out which starter operator a reference is, from its trace alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt_starters.flow import expression_of, plain_dtype
from kopt_starters.operator import Layout, Match, Operator

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.model.problem import Signature, TensorInfo, WorkloadSignature

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Task:
    """A recognised reference: the operator, how it is applied, and the first workload's call."""

    operator: Operator
    match: Match
    call: WorkloadSignature

    def layout(self, device: Device) -> Layout:
        """Return the first workload's extents as a kernel sees them."""
        shape = self.tensor(self.match.x).shape
        first, last = self.match.first, self.match.last
        return Layout(
            outer=math.prod(shape[:first]),
            count=math.prod(shape[first : last + 1]),
            inner=math.prod(shape[last + 1 :]),
            rowwise=last == len(shape) - 1,
            itemsize=ITEMSIZE[plain_dtype(self.tensor(self.match.x).dtype)],
            device=device,
        )

    def tensor(self, name: str) -> TensorInfo:
        """Return the tensor argument of that name; KeyError if there is none."""
        for argument in self.call.arguments:
            if argument.name == name and argument.tensor is not None:
                return argument.tensor
        raise KeyError(name)

    @property
    def dtypes(self) -> set[str]:
        """The dtypes of everything that a kernel touches."""
        touched = [self.match.x, self.match.weight, self.match.bias]
        found = {plain_dtype(self.tensor(name).dtype) for name in touched if name}
        return found | {plain_dtype(self.call.outputs[0].dtype)}


def recognise(signature: Signature, operators: Sequence[Operator]) -> Task | None:
    """Return what every workload computes in the same way; None if no operator fits them all."""
    tasks = [_recognise(call, operators) for call in signature.workloads.values()]
    if not tasks or (first := tasks[0]) is None:
        return None
    for task in tasks[1:]:
        if task is None or task.operator is not first.operator or task.match != first.match:
            return None
    return first


def _recognise(call: WorkloadSignature, operators: Sequence[Operator]) -> Task | None:
    expression = expression_of(call)
    if expression is None or call.outputs[0].shape != expression.shape:
        return None
    arguments = {a.name: a.tensor.shape for a in call.arguments if a.tensor is not None}
    for operator in operators:
        match = operator.match(expression, arguments)
        if match is not None:
            task = Task(operator, match, call)
            return task if task.dtypes <= ITEMSIZE.keys() else None
    return None
