"""Positions of a maximum or minimum: where several elements tie, any of their positions is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kopt.model.problem import OperatorCall, WorkloadSignature
    from kopt.model.reference import InputSet, Reference

_POSITIONS = {"aten.argmax.default": 0, "aten.argmin.default": 0, "aten.max.dim": 1,
              "aten.min.dim": 1}  # fmt: skip
"""Operators that return positions, and which of their outputs those are."""


@dataclass(frozen=True)
class Tie:
    """What a result that holds positions points into."""

    values: torch.Tensor
    dim: int | None
    """None: into all of it, flattened."""

    def rows(self, rows: slice) -> Tie:
        """Return the same for some rows of the result, where those are rows of the values too."""
        return self if self.dim is None else Tie(self.values[rows], self.dim)

    def differing(self, result: torch.Tensor, expected: torch.Tensor) -> int:
        """Count the positions that do not point at a value equal to the expected one's."""
        if result.shape != expected.shape:
            return int(expected.numel())
        values, dim = (self.values.reshape(-1), 0) if self.dim is None else (self.values, self.dim)
        mine, right = (self._along(t, values.dim(), dim) for t in (result, expected))
        inside = (mine >= 0) & (mine < values.shape[dim])
        mine = torch.where(inside, mine, right)
        equal = values.gather(dim, mine) == values.gather(dim, right)
        return int((~(inside & (equal | (mine == right)))).sum())

    def _along(self, positions: torch.Tensor, dims: int, dim: int) -> torch.Tensor:
        if self.dim is None:
            return positions.reshape(-1).long()
        return (positions if positions.dim() == dims else positions.unsqueeze(dim)).long()


def ties_of(reference: Reference, inputs: InputSet) -> dict[int, Tie]:
    """Return which results hold positions in an argument, by their number, as the trace tells.

    Only where one operator of the reference makes positions of that shape, and from an argument.
    """
    workload = inputs.workload if inputs.workload in reference.signature.workloads else ""
    signature = reference.signature.workloads.get(workload) or reference.signature.first
    if reference.problem.mutates:
        return {}
    calls = [call for call in signature.trace if call.name in _POSITIONS]
    whole = [i for i, (_, result) in enumerate(inputs.results) if result.dtype == torch.int64]
    if len(calls) != 1 or len(whole) != 1 or not _is_result(calls[0], signature, whole[0]):
        return {}
    name = calls[0].inputs[0]
    if name not in inputs.tensors:
        return {}
    scalars = calls[0].scalars
    dim = scalars[0] if scalars and isinstance(scalars[0], int) else None
    return {whole[0]: Tie(inputs.tensors[name], dim)}


def _is_result(call: OperatorCall, signature: WorkloadSignature, number: int) -> bool:
    """Whether an operator's positions have the shape of a result of the traced workload."""
    shapes = call.shapes[_POSITIONS[call.name] :]
    return bool(shapes) and tuple(shapes[0]) == signature.outputs[number].shape
