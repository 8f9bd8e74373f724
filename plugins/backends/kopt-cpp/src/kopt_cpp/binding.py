"""Binding a C function's arguments by name: pointers to tensors, integers and floats by expression."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError, ExpressionError
from kopt.model.expressions import evaluate, unmet
from kopt.model.values import ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.worker.segments import ITEM_BYTES

if TYPE_CHECKING:
    from kopt.model.executable import Memory
    from kopt.model.values import CallSpec, Value


class BoundTensor:
    """A tensor as expressions see it."""

    def __init__(self, ref: TensorRef, address: int) -> None:
        self.shape = ref.shape
        self.stride = ref.strides
        self.ndim = len(ref.shape)
        self.itemsize = ITEM_BYTES[ref.dtype]
        self.numel = 1
        for extent in ref.shape:
            self.numel *= extent
        self.address = address

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in memory, the last index fastest."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if extent != 1 and stride != step:
                return self.numel == 0
            step *= extent
        return True


def names_of(call: CallSpec, memory: Memory) -> dict[str, Any]:
    """Return every name that a header's ``arguments`` may use, with what it stands for.

    Arguments by the reference's names, module state with dots as underscores, outputs as ``out0``,
    ``out1`` and, for the first, ``out``.
    """
    names: dict[str, Any] = {}
    for argument in call.arguments:
        names[argument.name] = _named(argument.value, memory)
    for name, value in call.state.items():
        names[name.replace(".", "_")] = _named(value, memory)
    for index, ref in enumerate(call.outputs):
        names[f"out{index}"] = BoundTensor(ref, memory.address(ref))
    if call.outputs:
        names["out"] = names["out0"]
    return names


def _named(value: Value, memory: Memory) -> Any:
    match value:
        case TensorRef():
            return BoundTensor(value, memory.address(value))
        case ScalarValue():
            return value.value
        case _:
            return None  # lists and mappings cannot be passed to a C function


def c_arguments(expressions: list[str], names: dict[str, Any], knobs: dict[str, Any]) -> list[Any]:
    """Return the ctypes arguments: a pointer per tensor, int64 per integer, double per float.

    Raises CandidateError: PARSE_ERROR where an expression is wrong, UNSUPPORTED where a tensor is
    not contiguous and no expression passes a stride of it.
    """
    for text in expressions:
        tensor = names.get(text.strip())
        if not isinstance(tensor, BoundTensor) or tensor.contiguous:
            continue
        if not any(f"{text.strip()}.stride" in other for other in expressions):
            raise CandidateError(
                Status.UNSUPPORTED,
                f"{text.strip()} is not contiguous, and the kernel gets a bare pointer to it; pass "
                f"its strides ({text.strip()}.stride[0], ...) or a contiguous tensor",
            )
    return [_c_value(text, {**knobs, **names}) for text in expressions]


def _c_value(text: str, names: dict[str, Any]) -> Any:
    try:
        value = evaluate(text, names)
    except ExpressionError as error:
        raise CandidateError(
            Status.PARSE_ERROR, f"arguments in the kopt header: {error}"
        ) from error
    match value:
        case BoundTensor():
            return ctypes.c_void_p(value.address)
        case bool() | int():
            return ctypes.c_int64(int(value))
        case float():
            return ctypes.c_double(value)
    raise CandidateError(
        Status.PARSE_ERROR,
        f"arguments in the kopt header: {text!r} is {value!r}, neither tensor, integer nor float",
    )


def check_required(conditions: list[str], names: dict[str, Any]) -> None:
    """Raise CandidateError (UNSUPPORTED) where a condition of the header does not hold."""
    try:
        condition = unmet(conditions, names)
    except ExpressionError as error:
        raise CandidateError(Status.PARSE_ERROR, f"requires in the kopt header: {error}") from error
    if condition is not None:
        raise CandidateError(
            Status.UNSUPPORTED,
            f"the kernel requires {condition}, which does not hold for this call",
        )


def default_arguments(call: CallSpec) -> list[str]:
    """Return the arguments of a file without a header: inputs, state, outputs, in this order."""
    inputs = [argument.name for argument in call.arguments]
    state = [name.replace(".", "_") for name in call.state]
    return [*inputs, *state, *(f"out{i}" for i in range(len(call.outputs)))]
