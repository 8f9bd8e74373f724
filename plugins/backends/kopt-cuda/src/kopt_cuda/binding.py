"""The plan of one call with its numbers: grids, blocks, and each argument in its C type."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError, ExpressionError
from kopt.model.expressions import evaluate, unmet
from kopt.model.verification import Status
from kopt.worker.binding import BoundTensor, default_arguments, names_of
from kopt_cuda.plan import Plan, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kopt.model.values import CallSpec, TensorRef
    from kopt_cuda.plan import Expression, Launch
    from kopt_cuda.signatures import Kernel, Parameter


@dataclass(frozen=True)
class ResolvedLaunch:
    """One launch in numbers."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    """Bytes of dynamic shared memory."""
    arguments: tuple[bytes, ...]
    """As the device gets them, in order."""
    cluster: tuple[int, int, int] | None = None


class Resolver:
    """Evaluates a plan for one call. Everything raises CandidateError with a line of the source."""

    def __init__(
        self, source: str, plan: Plan, kernels: Mapping[str, Kernel], knobs: Mapping[str, Any],
        call: CallSpec, address: Callable[[TensorRef], int],
    ) -> None:  # fmt: skip
        """``address``: where a tensor of the call lies; 0 for nowhere."""
        self._source, self._plan, self._kernels = source, plan, kernels
        self._default = default_arguments(call)
        self._values = {**knobs, **names_of(call, address)}

    def check_required(self) -> None:
        """Raise CandidateError (UNSUPPORTED) where the plan is not for this call."""
        try:
            condition = unmet(self._plan.requires, self._values)
        except ExpressionError as error:
            raise fault(self._source, f"requires: {error}", "requires") from error
        if condition is not None:
            raise fault(
                self._source, f"it requires {condition}, which does not hold for this call",
                "requires", status=Status.UNSUPPORTED,
            )  # fmt: skip

    def scratch(self) -> dict[str, tuple[tuple[int, ...], str, bool]]:
        """Return shape, dtype and whether it is zeroed, of every scratch buffer."""
        found = {}
        for name, wanted in self._plan.scratch.items():
            if name in self._values:
                raise fault(self._source, f"scratch {name!r}: the name is taken; use another", name)
            shape = tuple(self._integer(each, f"shape of scratch {name}") for each in wanted.shape)
            if min(shape, default=1) < 1:
                raise fault(self._source, f"scratch {name} has shape {list(shape)}", name)
            found[name] = (shape, wanted.dtype, wanted.zeroed)
        return found

    def add_scratch(self, name: str, shape: tuple[int, ...], dtype: str, address: int) -> None:
        """Make a scratch buffer known under its name."""
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        self._values[name] = BoundTensor(shape, strides, dtype, address)

    def launches(self) -> list[ResolvedLaunch]:
        """Return the launches of the plan in numbers."""
        return [self._launch(index, each) for index, each in enumerate(self._plan.launch)]

    def _launch(self, index: int, launch: Launch) -> ResolvedLaunch:
        kernel = self._kernels.get(launch.kernel)
        if kernel is None:
            raise missing_kernel(self._source, launch.kernel, self._kernels, index)
        what = f"launch of {launch.kernel}"
        return ResolvedLaunch(
            kernel=launch.kernel,
            grid=self._triple(launch.grid, f"{what}: grid", index),
            block=self._triple(launch.block, f"{what}: block", index),
            shared=self._integer(launch.shared, f"{what}: shared", index),
            arguments=tuple(self._arguments(launch, kernel, index)),
            cluster=self._triple(launch.cluster, f"{what}: cluster", index)
            if launch.cluster else None,
        )  # fmt: skip

    def _triple(self, texts: Sequence[Expression], what: str, launch: int) -> tuple[int, int, int]:
        x, y, z = (*(self._integer(text, what, launch) for text in texts), 1, 1)[:3]
        return x, y, z

    def _value(self, text: Expression, what: str, launch: int | None) -> Any:
        try:
            return evaluate(str(text), self._values)
        except ExpressionError as error:
            raise fault(self._source, f"{what}: {error}", text, launch=launch) from error

    def _integer(self, text: Expression, what: str, launch: int | None = None) -> int:
        value = self._value(text, what, launch)
        if isinstance(value, int):
            return int(value)
        raise fault(
            self._source, f"{what}: {text!r} is {_shown(value)}, no integer", text, launch=launch
        )

    def _arguments(self, launch: Launch, kernel: Kernel, index: int) -> list[bytes]:
        given: Sequence[Expression] = self._default
        if launch.arguments is not None:
            given = launch.arguments
        if len(given) != len(kernel.parameters):
            wanted = ", ".join(f"{each.type} {each.name}".strip() for each in kernel.parameters)
            raise fault(
                self._source,
                f"launch of {kernel.name}: {len(given)} arguments ({', '.join(map(str, given))}) for "
                f"{len(kernel.parameters)} parameters ({wanted}, in line {kernel.line})",
                "arguments", kernel.name, launch=index,
            )  # fmt: skip
        return [
            self._argument(text, parameter, kernel, index, given)
            for text, parameter in zip(given, kernel.parameters, strict=True)
        ]

    def _argument(
        self, text: Expression, parameter: Parameter, kernel: Kernel, launch: int,
        given: Sequence[Expression],
    ) -> bytes:  # fmt: skip
        what = f"launch of {kernel.name}: argument {str(text)!r}"
        place = f"parameter {parameter.name or parameter.type} (line {kernel.line})"
        value = self._value(text, what, launch)
        if isinstance(value, BoundTensor):
            if said := _tensor_fault(str(text), value, parameter, given):
                status, words = said
                raise fault(
                    self._source, f"{what}: {words.format(place=place)}", text, launch=launch,
                    status=status,
                )  # fmt: skip
            return struct.pack("P", value.address)
        packed = _packed(value, parameter)
        if isinstance(packed, str):
            raise fault(
                self._source,
                f"{what} is {_shown(value)}, and {place} {packed}",
                text,
                launch=launch,
            )
        return packed


def _tensor_fault(
    text: str, tensor: BoundTensor, parameter: Parameter, given: Sequence[Expression]
) -> tuple[Status, str] | None:
    """Return why a tensor cannot be passed for a parameter; None: it can."""
    if parameter.scalar is not None:
        wanted = f"takes {parameter.type} by value"
        return Status.PARSE_ERROR, f"it is a {tensor.dtype} tensor, and {{place}} {wanted}"
    if tensor.dtype not in parameter.dtypes:
        return Status.PARSE_ERROR, (
            f"it is a {tensor.dtype} tensor, and {{place}} points to {parameter.type}, which holds "
            f"{' or '.join(sorted(parameter.dtypes))}"
        )
    strided = any(f"{text.strip()}.stride" in str(other) for other in given)
    if not tensor.contiguous and not strided:
        return Status.UNSUPPORTED, (
            f"it is not contiguous, and {{place}} is a bare pointer to it; pass its strides "
            f"({text.strip()}.stride[0], ...) or a contiguous tensor"
        )
    if tensor.address % parameter.alignment:
        return Status.UNSUPPORTED, (
            f"it lies at an address that is no multiple of {parameter.alignment} bytes, and "
            f"{{place}} points to {parameter.type}; take a plain pointer and handle the rest"
        )
    return None


def _packed(value: Any, parameter: Parameter) -> bytes | str:
    """Return a number in the parameter's C type, or why it cannot be passed."""
    if parameter.scalar is None:
        return f"points to {parameter.type}; name a tensor"
    if not isinstance(value, bool | int | float):
        return f"takes {parameter.type}; pass a number"
    if isinstance(value, float) and parameter.scalar not in "fd":
        return f"takes {parameter.type}; declare it float or double, or pass an integer"
    try:
        return struct.pack(f"={parameter.scalar}", value)
    except (struct.error, OverflowError):
        return f"takes {parameter.type}, which does not hold it; use a wider type"


def _shown(value: Any) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, BoundTensor) else repr(value)


def missing_kernel(
    source: str, name: str, kernels: Mapping[str, Kernel], launch: int | None = None
) -> CandidateError:
    """Return what to say where the plan names a kernel that the source does not define."""
    known = ", ".join(kernels) or "none"
    return fault(
        source,
        f'the source defines no extern "C" __global__ kernel {name!r}; it defines: {known}',
        f'"{name}"', launch=launch,
    )  # fmt: skip
