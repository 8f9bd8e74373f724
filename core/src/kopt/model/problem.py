"""What is to be made faster: the reference, its inputs, its workloads and how close is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import Field, model_validator

from kopt.model.expressions import evaluate
from kopt.model.record import Record, content_id

Scalar = bool | int | float | str | None
Distribution = Literal["normal", "uniform", "integers", "bernoulli", "zeros", "ones"]


class InputSpec(Record):
    """One argument of the reference: a tensor (``shape`` given) or a scalar (``value``)."""

    name: str
    shape: tuple[int | str, ...] | None = None
    """Extents; a string is an expression over the workload's sizes, as in ``"rows * 2"``."""
    dtype: str = "float32"
    distribution: Distribution = "normal"
    low: float | None = None
    """Smallest value (``uniform``, ``integers``)."""
    high: float | str | None = None
    """Largest value, exclusive for ``integers``, where a string is an expression over the workload's
    sizes; a bernoulli's probability of one."""
    value: Scalar = None
    keyword: bool = False
    """Passed by keyword."""

    def high_at(self, sizes: Mapping[str, int]) -> float | None:
        """Return ``high`` at a workload's sizes. Raises ExpressionError."""
        if not isinstance(self.high, str):
            return self.high
        return float(evaluate(self.high, sizes))


class Workload(Record):
    """One set of sizes; ``measure`` workloads are timed, ``check`` ones only verified."""

    name: str = "default"
    sizes: dict[str, int] = Field(default_factory=dict)
    weight: float = Field(default=1.0, gt=0)
    role: Literal["measure", "check"] = "measure"


Precision = Literal["reference", "strict", "tf32"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Tolerance(Record):
    """How far from the float64 oracle a result may be (docs/explanation/verification)."""

    factor: float | None = Field(default=None, gt=0)
    """k of ``rms(y - y64) <= max(k rms(y_ref - y64), floor)``; None: 2, or 3 for half types."""
    precision: Precision = "reference"
    """Which float32 arithmetic the reference uses: PyTorch's defaults, no TF32, or TF32."""


class ReferenceSource(Record):
    """Where the reference comes from; it is executed in the judge process only."""

    kind: Literal["function", "kernelbench", "pickled"]
    source: str
    """Python source, or base64 of a cloudpickle for ``pickled``."""
    entry: str
    """The function's name; ``Model`` for KernelBench."""
    filename: str = "reference.py"


class Problem(Record):
    """A reference and all that is needed to judge a replacement of it."""

    name: str
    format: str
    reference: ReferenceSource
    inputs: tuple[InputSpec, ...] = ()
    """Empty where the reference makes its own (KernelBench's ``get_inputs``)."""
    workloads: tuple[Workload, ...] = (Workload(),)
    tolerance: Tolerance = Tolerance()
    mutates: tuple[str, ...] = ()
    """Arguments that the reference changes in place, by name."""

    @model_validator(mode="after")
    def _names_agree(self) -> Problem:
        names = [spec.name for spec in self.inputs]
        if len(set(names)) != len(names):
            raise ValueError(f"an input name is used twice: {', '.join(names)}")
        if names and (unknown := set(self.mutates) - set(names)):
            raise ValueError(f"mutates names no input: {', '.join(sorted(unknown))}")
        if not any(workload.role == "measure" for workload in self.workloads):
            raise ValueError("no workload has role 'measure': nothing could be timed")
        labels = [workload.name for workload in self.workloads]
        if len(set(labels)) != len(labels):
            raise ValueError(f"a workload name is used twice: {', '.join(labels)}")
        return self

    @property
    def id(self) -> str:
        """Content hash of everything that decides what is right and what is timed."""
        return content_id(self.to_json())

    def workload(self, name: str) -> Workload:
        """Return the workload called ``name``; KeyError if there is none."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise KeyError(name)


class TensorInfo(Record):
    """A tensor as the reference sees it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


class ArgumentInfo(Record):
    """One argument of a call: a tensor, a scalar, or module state (parameter, buffer)."""

    name: str
    kind: Literal["tensor", "scalar", "state", "other"]
    tensor: TensorInfo | None = None
    value: Scalar = None


class Operand(Record):
    """One argument of an operator: a value by name, a constant, or a list of them."""

    tensor: str = ""
    """Name of a value; empty where it is none."""
    value: Scalar | tuple[Scalar, ...] = None
    """The constant, as ``2``, ``(1, 2)`` or ``torch.float32``; None where it is none."""
    items: tuple[Operand, ...] = ()
    """Of a list with tensors in it."""


class OperatorCall(Record):
    """One framework operator that the reference ran, with its data flow."""

    name: str
    """As ``aten.mean.dim``."""
    inputs: tuple[str, ...] = ()
    """Names of values: an argument's name, or ``%3`` for the third intermediate."""
    outputs: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the outputs."""
    scalars: tuple[Scalar | tuple[Scalar, ...], ...] = ()
    """The arguments that are no tensors, in order."""
    operands: tuple[Operand, ...] = ()
    """Every positional argument, in order."""
    keywords: dict[str, Operand] = Field(default_factory=dict)
    """Every argument that was passed by name."""
    dtypes: tuple[str, ...] = ()
    """Of the outputs, as ``float32``."""
    flops: int = 0
    """Floating-point operations, of products and convolutions alone (a multiply-add counts two)."""
    dtype: str = ""
    """In which a product or convolution is done, as ``float32``; empty for other operators."""


class WorkloadSignature(Record):
    """Shapes, dtypes and compulsory traffic of one workload."""

    arguments: tuple[ArgumentInfo, ...]
    outputs: tuple[TensorInfo, ...]
    structure: str = "tensor"
    """``tensor``, ``tuple:2``, ``list:2``, ``dict:a,b`` or ``none``."""
    compulsory_bytes: int
    """Every input read once and every output written once."""
    memory_bytes: int = 0
    """What judging a candidate takes at least; 0 where shapes alone do not tell."""
    trace: tuple[OperatorCall, ...] = ()
    tf32: bool | None = None
    """Whether the reference's float32 convolutions are done in TF32, as seen; None: not looked at."""


class Signature(Record):
    """What running the reference once taught: per workload, by name."""

    workloads: dict[str, WorkloadSignature]

    @property
    def first(self) -> WorkloadSignature:
        """The first workload's signature."""
        return next(iter(self.workloads.values()))
