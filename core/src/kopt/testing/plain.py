"""A backend without a framework: Python functions over flat memory, for tests of plugins and kopt.

A ``plain`` source defines a function that takes the problem's arguments, tensors as flat
memoryviews, and last the output as another one, and fills it; reference and candidates alike.
It is slow and it is real: candidates run in their own process on the judge's memory and clock.
"""

from __future__ import annotations

import platform
import time
from array import array
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import psutil

import kopt
from kopt.errors import CandidateError, ProblemError
from kopt.model.candidate import Candidate
from kopt.model.device import Device
from kopt.model.evaluation import Build
from kopt.model.problem import ArgumentInfo, Signature, TensorInfo, WorkloadSignature
from kopt.model.reference import Answer
from kopt.model.values import CallClaim, OutputClaim, ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.testing.plain_inputs import FORMATS, PlainInputs, flat, shape_of
from kopt.worker.segments import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kopt.model.executable import BoundCall, BuildContext, Executable, Memory
    from kopt.model.problem import InputSpec, Problem, Workload
    from kopt.model.reference import Change, InputSet, Reference
    from kopt.model.values import CallSpec

LANGUAGE = "plain"


class PlainBackend:
    """Reference, baseline and candidates in language ``plain``."""

    @kopt.hookimpl
    def kopt_open_reference(self, problem: Problem, device: str) -> Reference | None:
        """Make a problem of plain functions runnable; other formats are left to others."""
        return PlainReference(problem) if problem.format == LANGUAGE else None

    @kopt.hookimpl
    def kopt_baselines(self, problem: Problem, device: str) -> Iterable[Candidate]:
        """Name the reference itself, as ``loop``."""
        if problem.format == LANGUAGE:
            source = problem.reference
            yield Candidate(
                language=LANGUAGE, source=source.source, entry=source.entry, strategy="baseline",
                idea="loop",
            )  # fmt: skip

    @kopt.hookimpl
    def kopt_build(
        self, problem: Problem, candidate: Candidate, context: BuildContext
    ) -> Executable | None:
        """Run the source and take its entry."""
        if candidate.language != LANGUAGE:
            return None
        start = time.monotonic()
        try:
            entry = _entry_of(candidate.source, candidate.entry)
        except SyntaxError as error:
            raise CandidateError(Status.PARSE_ERROR, f"line {error.lineno}: {error.msg}") from error
        except CandidateError:
            raise
        except BaseException as error:
            raise CandidateError(Status.LAUNCH_FAILED, f"importing it raised {error!r}") from error
        seconds = time.monotonic() - start
        return PlainExecutable(
            Build(backend=LANGUAGE, binary_id=candidate.id, seconds=seconds), entry
        )


def _entry_of(source: str, name: str) -> Callable[..., None]:
    names: dict[str, Any] = {"__name__": "plain_candidate"}
    exec(
        compile(source, "plain_candidate.py", "exec"), names
    )  # this is what a candidate process is for
    if not callable(names.get(name)):
        raise CandidateError(Status.PARSE_ERROR, f"it defines no function {name!r}")
    entry: Callable[..., None] = names[name]
    return entry


class PlainExecutable:
    """See kopt.model.executable.Executable."""

    timeable = True

    def __init__(self, build: Build, entry: Callable[..., None]) -> None:
        self.build = build
        self._entry = entry

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Make the views once."""
        values = [argument.value for argument in call.arguments]
        return PlainCall(
            self._entry, [_view(value, memory) for value in (*values, *call.outputs)], call
        )

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """There is no clock but the judge's."""
        return None


class PlainCall:
    """See kopt.model.executable.BoundCall."""

    def __init__(self, entry: Callable[..., None], arguments: list[Any], call: CallSpec) -> None:
        self._entry, self._arguments = entry, arguments
        self._claim = CallClaim(
            structure=call.structure,
            outputs=tuple(
                OutputClaim(dtype=ref.dtype, shape=ref.shape, device="cpu") for ref in call.outputs
            ),
        )

    def launch(self) -> None:
        """Call the function."""
        self._entry(*self._arguments)

    def collect(self) -> CallClaim:
        """Describe the output, which the function wrote in place."""
        return self._claim


def _view(value: Any, memory: Memory) -> Any:
    match value:
        case TensorRef():
            return flat(memory.buffer(value), value.dtype)
        case ScalarValue():
            return value.value
    raise CandidateError(Status.UNSUPPORTED, "plain functions take tensors and scalars only")


class PlainReference:
    """See kopt.model.reference.Reference; the result is like the first tensor argument."""

    distributions: tuple[str, ...] = ("native",)
    sharper: tuple[str, ...] = ()
    input_notes: tuple[str, ...] = ()

    def __init__(self, problem: Problem) -> None:
        """Raises ProblemError where the function or its inputs are not plain."""
        dtypes = [spec.dtype for spec in problem.inputs if spec.shape is not None]
        if not dtypes or not set(dtypes) <= set(FORMATS):
            raise ProblemError(f"a plain problem needs tensors of {', '.join(FORMATS)}")
        self.problem = problem
        try:
            self._function = _entry_of(problem.reference.source, problem.reference.entry)
        except Exception as error:
            raise ProblemError(f"the reference cannot be loaded: {error}") from error
        self.device = Device(
            kind="cpu", name="plain", architecture=platform.machine(), units=1,
            memory_bytes=psutil.virtual_memory().total, cache_bytes=1 << 12,
            versions={"python": platform.python_version()},
        )  # fmt: skip
        self.signature = Signature(workloads={w.name: self._signed(w) for w in problem.workloads})

    def _signed(self, workload: Workload) -> WorkloadSignature:
        arguments = tuple(_argument(spec, workload) for spec in self.problem.inputs)
        tensors = [argument.tensor for argument in arguments if argument.tensor is not None]
        output = tensors[0].model_copy(update={"name": "out0"})
        moved = sum(tensor.elements * ITEM_BYTES[tensor.dtype] for tensor in [*tensors, output])
        return WorkloadSignature(arguments=arguments, outputs=(output,), compulsory_bytes=moved)

    def sharpen(self, names: Iterable[str]) -> None:
        """There is nothing sharper."""

    def lend(self, nbytes: int) -> AbstractContextManager[bool]:
        """Nobody else wants any."""
        return nullcontext(True)

    def inputs(self, workload: str, seed: int, distribution: str = "native") -> InputSet:
        """Draw arguments; a function of workload and seed."""
        return PlainInputs(self.problem, self.problem.workload(workload), seed)

    def expected(self, inputs: InputSet) -> list[Any]:
        """Run the reference on copies, in the problem's dtypes."""
        return self._run(inputs, {})

    def expected_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[Any]:
        """Do the same with other tensors for some arguments; there is no state."""
        return self._run(inputs, {}, arguments)

    def oracle(self, inputs: InputSet) -> list[Any]:
        """Run the reference on copies, with every floating tensor in float64."""
        return self._run(inputs, {"f": "d"})

    def _run(
        self, inputs: InputSet, wider: dict[str, str], others: Mapping[str, Any] | None = None
    ) -> list[Any]:
        tensors = inputs.tensors | dict(others or {})
        copies = {
            name: array(wider.get(view.format, view.format), view) for name, view in tensors.items()
        }
        out = array(next(iter(copies.values())).typecode, bytes(8 * len(inputs.outputs[0])))
        del out[len(inputs.outputs[0]) :]
        arguments = [
            copies[spec.name] if spec.shape is not None else spec.value
            for spec in self.problem.inputs
        ]
        self._function(*map(_viewed, arguments), memoryview(out))
        return [out, *(copies[name] for name in self.problem.mutates)]

    def oracle_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[Any]:
        """Do the same with other tensors for some arguments; there is no state."""
        return self._run(inputs, {"f": "d"}, arguments)

    def extents(self, workload: str) -> Mapping[str, int]:
        """Nothing can be changed here."""
        return {}

    def changed_inputs(self, workload: str, seed: int, change: Change) -> None:
        """There are no other inputs than the problem's."""

    def answers(self, inputs: InputSet) -> Iterator[Answer]:
        """Yield everything at once."""
        yield Answer(slice(None), self.expected(inputs), self.oracle(inputs))

    def copy_ms(self, nbytes: int) -> float:
        """Time a plain copy of half the bytes, which reads and writes that much each."""
        source = bytes(max(1, nbytes // 2))
        start = time.perf_counter()
        bytearray(source)
        return max((time.perf_counter() - start) * 1e3, 1e-6)

    def close(self) -> None:
        """Nothing is held but what input sets hold."""


def _viewed(value: Any) -> Any:
    return memoryview(value) if isinstance(value, array) else value


def _argument(spec: InputSpec, workload: Workload) -> ArgumentInfo:
    if spec.shape is None:
        return ArgumentInfo(name=spec.name, kind="scalar", value=spec.value)
    tensor = TensorInfo(name=spec.name, dtype=spec.dtype, shape=shape_of(spec, workload))
    return ArgumentInfo(name=spec.name, kind="tensor", tensor=tensor)
