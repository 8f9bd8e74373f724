"""Tensors that a reference searches in: what is drawn for them is sorted, or no result is defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    import torch

    from kopt.model.problem import OperatorCall
    from kopt_torch.drawing import Draw

_PLACES = {"aten.searchsorted": 0, "aten.bucketize": 1, "aten.histogram": 1}
"""Which operand of an operator has to be sorted along its last dimension, where it is a tensor."""
_KEEPING = (
    "aten._to_copy", "aten.alias", "aten.clone", "aten.detach", "aten.expand", "aten.select",
    "aten.slice", "aten.squeeze", "aten.unsqueeze", "aten.view",
)  # fmt: skip
"""Operators after which sorted rows are sorted, as references use them."""


def searched(calls: Iterable[OperatorCall]) -> frozenset[str]:
    """Return the names of the arguments, parameters and buffers that a traced reference searches in."""
    found: set[str] = set()
    origin: dict[str, str] = {}
    for call in calls:
        operator = ".".join(call.name.split(".")[:2])
        if operator in _KEEPING and call.operands:
            made_of = call.operands[0].tensor
            origin.update(dict.fromkeys(call.outputs, origin.get(made_of, made_of)))
        place = _PLACES.get(operator)
        sorter = call.keywords.get("sorter")
        if place is None or place >= len(call.operands) or (sorter is not None and sorter.tensor):
            continue
        name = call.operands[place].tensor
        found.add(origin.get(name, name))
    return frozenset(name for name in found if name and not name.startswith("%"))


def in_order(drawn: Draw, names: Set[str]) -> Draw:
    """Sort the rows of these arguments, in place of what was drawn."""
    if names:
        drawn.change(lambda name, tensor: sorted_rows(tensor) if name in names else tensor)
    return drawn


def sorted_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose last dimension ascends."""
    return tensor.sort(-1).values if tensor.dim() else tensor
