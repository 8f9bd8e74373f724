"""A call as the expressions of a kernel's header see it: tensors by name, with shapes and addresses."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from kopt.model.values import CallSpec, ScalarValue, TensorRef, Value
from kopt.worker.segments import ITEM_BYTES


class BoundTensor:
    """A tensor as expressions see it."""

    def __init__(
        self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: str, address: int
    ) -> None:
        """``address``: 0 where it lies nowhere, ahead of time."""
        self.shape, self.stride, self.dtype, self.address = shape, stride, dtype, address
        self.ndim = len(shape)
        self.itemsize = ITEM_BYTES[dtype]
        self.numel = prod(shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in memory, the last index fastest."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if extent != 1 and stride != step:
                return self.numel == 0
            step *= extent
        return True


def names_of(call: CallSpec, address: Callable[[TensorRef], int]) -> dict[str, Any]:
    """Return every name that a header may use, with what it stands for.

    Arguments by the reference's names, module state with dots as underscores, outputs as ``out0``,
    ``out1`` and, for the first, ``out``, which comes last. Lists and mappings, which no kernel
    takes, stand for None.
    """

    def named(value: Value) -> Any:
        match value:
            case TensorRef():
                return BoundTensor(value.shape, value.strides, value.dtype, address(value))
            case ScalarValue():
                return value.value
            case _:
                return None

    values = {argument.name: named(argument.value) for argument in call.arguments}
    values |= {name.replace(".", "_"): named(value) for name, value in call.state.items()}
    values |= {f"out{index}": named(ref) for index, ref in enumerate(call.outputs)}
    if call.outputs:
        values["out"] = values["out0"]
    return values


def default_arguments(call: CallSpec) -> list[str]:
    """Return the arguments of a file that names none: inputs, state, outputs, in this order."""
    inputs = [argument.name for argument in call.arguments]
    state = [name.replace(".", "_") for name in call.state]
    return [*inputs, *state, *(f"out{i}" for i in range(len(call.outputs)))]
