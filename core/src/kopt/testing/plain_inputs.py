"""Input sets over plain memory: what the ``plain`` test backend's judge hands to candidates."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from kopt.model.expressions import evaluate
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.worker.segments import GUARD_BYTES, ITEM_BYTES, Segment

if TYPE_CHECKING:
    from kopt.model.problem import InputSpec, Problem, Workload
    from kopt.model.reference import SharedSegment

FORMATS = {"float64": "d", "float32": "f", "int64": "q", "int32": "i"}
"""Dtypes that plain tensors may have, as formats of a memoryview."""
_GUARD = bytes(range(1, 129)) * (GUARD_BYTES // 128)


def shape_of(spec: InputSpec, workload: Workload) -> tuple[int, ...]:
    """Return the extents of a tensor argument for a workload's sizes."""
    return tuple(
        extent if isinstance(extent, int) else int(evaluate(extent, workload.sizes))
        for extent in spec.shape or ()
    )


def flat(payload: memoryview, dtype: str) -> Any:
    """Return bytes as a memoryview of elements."""
    view: Any = payload  # typeshed wants the format as a literal
    return view.cast(FORMATS[dtype])


class PlainTensor:
    """A contiguous tensor in a shared segment of its own, between guards."""

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape
        self.nbytes = math.prod(shape) * ITEM_BYTES[dtype]
        self.segment = Segment(self.nbytes + 2 * GUARD_BYTES)
        self.write_guards()

    @property
    def payload(self) -> memoryview:
        """The bytes between the guards."""
        return memoryview(self.segment.map)[GUARD_BYTES : GUARD_BYTES + self.nbytes]

    @property
    def values(self) -> Any:
        """The elements as a flat memoryview."""
        return flat(self.payload, self.dtype)

    def ref(self) -> TensorRef:
        """Return how a candidate process is told of it."""
        strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        return TensorRef(
            segment=self.segment.id, offset=GUARD_BYTES, dtype=self.dtype, shape=self.shape,
            strides=strides,
        )  # fmt: skip

    def write_guards(self) -> None:
        """Write the bytes around the payload."""
        self.segment.map[:GUARD_BYTES] = _GUARD
        self.segment.map[GUARD_BYTES + self.nbytes :] = _GUARD

    def guards_hurt(self) -> bool:
        """Whether a byte around the payload was overwritten."""
        whole = memoryview(self.segment.map)
        return whole[:GUARD_BYTES] != _GUARD or whole[GUARD_BYTES + self.nbytes :] != _GUARD


class PlainInputs:
    """See kopt.model.reference.InputSet; the only output is like the first tensor argument."""

    distribution = "native"

    def __init__(self, problem: Problem, workload: Workload, seed: int) -> None:
        self.workload, self.seed = workload.name, seed
        self._specs = problem.inputs
        self.arguments: dict[str, PlainTensor] = {
            spec.name: PlainTensor(spec.name, spec.dtype, shape_of(spec, workload))
            for spec in problem.inputs
            if spec.shape is not None
        }
        first = next(iter(self.arguments.values()))
        self.output = PlainTensor("out0", first.dtype, first.shape)
        self._every = (*self.arguments.values(), self.output)
        self.outputs: list[Any] = [self.output.values]
        self.tensors: dict[str, Any] = {n: t.values for n, t in self.arguments.items()}
        self._fill()
        self._drawn = {name: bytes(tensor.payload) for name, tensor in self.arguments.items()}
        self._mutates = problem.mutates
        self.call = CallSpec(
            arguments=tuple(self._named(spec) for spec in problem.inputs),
            outputs=(self.output.ref(),),
        )

    def _named(self, spec: InputSpec) -> NamedValue:
        if spec.shape is None:
            return NamedValue(name=spec.name, value=ScalarValue(value=spec.value))
        return NamedValue(name=spec.name, value=self.arguments[spec.name].ref())

    def _fill(self) -> None:
        rng = random.Random(self.seed)
        for spec in self._specs:
            if spec.shape is not None:
                values = self.tensors[spec.name]
                for index in range(len(values)):
                    values[index] = _draw(spec, rng)

    @property
    def segments(self) -> list[SharedSegment]:
        """Every shared segment."""
        return [tensor.segment for tensor in self._every]

    @property
    def results(self) -> list[tuple[str, Any]]:
        """The output, then the arguments that are changed in place."""
        return [("out0", self.outputs[0]), *((name, self.tensors[name]) for name in self._mutates)]

    def changed(self) -> list[str]:
        """Names of arguments whose bytes differ from what was drawn."""
        return [
            name for name, drawn in self._drawn.items() if self.arguments[name].payload != drawn
        ]

    def canaries_hurt(self) -> list[str]:
        """Names of tensors around which bytes were overwritten."""
        return [tensor.name for tensor in self._every if tensor.guards_hurt()]

    def restore(self) -> None:
        """Write arguments and guards as they were."""
        for name, drawn in self._drawn.items():
            self.arguments[name].payload[:] = drawn
        for tensor in self._every:
            tensor.write_guards()

    def redraw(self, seed: int) -> None:
        """Draw other content into the same memory."""
        self.seed = seed
        self._fill()
        self._drawn = {name: bytes(tensor.payload) for name, tensor in self.arguments.items()}
        self.restore()

    def perturb(self, seed: int) -> bool:
        """Leave inputs as they are: these are too small to hide a change in."""
        return False

    def poison(self, byte: int) -> None:
        """Set every byte of the output."""
        self.output.payload[:] = bytes([byte]) * self.output.nbytes

    def close(self) -> None:
        """Give the memory back."""
        self.outputs, self.tensors = [], {}
        for tensor in self._every:
            tensor.segment.close()


def _draw(spec: InputSpec, rng: random.Random) -> float | int:
    low, high = spec.low if spec.low is not None else 0.0, spec.high_at({}) or 1.0
    match spec.distribution:
        case "normal":
            value: float = rng.gauss(0.0, 1.0)
        case "uniform":
            value = rng.uniform(low, high)
        case "integers":
            value = rng.randrange(int(low), max(int(high), int(low) + 1))
        case "bernoulli":
            value = float(rng.random() < (0.5 if spec.high is None else high))
        case "zeros" | "ones":
            value = float(spec.distribution == "ones")
    return value if spec.dtype.startswith("float") else int(value)
