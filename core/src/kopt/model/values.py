"""Values that cross from the judge to a candidate process: tensors by reference, scalars by value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kopt.model.problem import Scalar
from kopt.model.record import Record


class TensorRef(Record):
    """A tensor in judge-owned memory: a CPU's by file descriptor, a GPU's by CUDA IPC or as a copy."""

    type: Literal["tensor"] = "tensor"
    segment: int
    """Id of the shared segment, announced before."""
    offset: int
    """Bytes from the segment's start."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""


class ScalarValue(Record):
    """A number, string, bool or None."""

    type: Literal["scalar"] = "scalar"
    value: Scalar


class ListValue(Record):
    """A list or tuple of values."""

    type: Literal["list", "tuple"]
    items: tuple[Value, ...]


class DictValue(Record):
    """A mapping with string keys."""

    type: Literal["dict"] = "dict"
    items: dict[str, Value]


Value = Annotated[TensorRef | ScalarValue | ListValue | DictValue, Field(discriminator="type")]


class NamedValue(Record):
    """An argument with the name that the reference gives it."""

    name: str
    value: Value
    keyword: bool = False


class CallSpec(Record):
    """Everything that one call of a candidate gets, and where its results must go."""

    arguments: tuple[NamedValue, ...]
    state: dict[str, Value] = Field(default_factory=dict)
    """Parameters and buffers of the reference's module, by their names there."""
    init: tuple[NamedValue, ...] = ()
    """Constructor arguments of the reference's module."""
    outputs: tuple[TensorRef, ...]
    """Judge-owned buffers, one per output tensor, in order."""
    structure: str = "tensor"
    """As in WorkloadSignature."""


class OutputClaim(Record):
    """What the candidate's process says about one returned tensor; content is never taken on faith."""

    dtype: str
    shape: tuple[int, ...]
    device: str


class CallClaim(Record):
    """What the candidate's process says about a call: structure and outputs."""

    structure: str
    outputs: tuple[OutputClaim, ...]


ListValue.model_rebuild()
DictValue.model_rebuild()
NamedValue.model_rebuild()
CallSpec.model_rebuild()
