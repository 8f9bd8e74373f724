"""What operators a reference runs, with their data flow."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kopt.model.problem import OperatorCall

_MOST_CALLS = 2000


class TraceMode(TorchDispatchMode):
    """Records each aten operator: names of its inputs and outputs, shapes, other arguments."""

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._names = {id(tensor): name for name, tensor in named.items()}
        self._kept: list[torch.Tensor] = list(named.values())
        self.calls: list[OperatorCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and write it down."""
        result = func(*args, **(kwargs or {}))
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if outputs and len(self.calls) < _MOST_CALLS:  # others only ask, as prim.device does
            leaves = tree_leaves([args, kwargs or {}])
            inputs = tuple(self._name(x) for x in leaves if isinstance(x, torch.Tensor))
            self.calls.append(
                OperatorCall(
                    name=str(func),
                    inputs=inputs,
                    outputs=tuple(self._name(x) for x in outputs),
                    shapes=tuple(tuple(x.shape) for x in outputs),
                    scalars=_scalars(args, kwargs),
                )
            )
        return result

    def _name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._names:
            self._kept.append(tensor)  # so that its id stays its own
            self._names[id(tensor)] = f"%{len(self._names)}"
        return self._names[id(tensor)]


def _scalars(args: Any, kwargs: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in [*args, *(kwargs or {}).values()]:
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, list | tuple):
            if any(isinstance(item, torch.Tensor) for item in value):
                continue
            found.append(tuple(_plain(item) for item in value))
        else:
            found.append(_plain(value))
    return tuple(found)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
