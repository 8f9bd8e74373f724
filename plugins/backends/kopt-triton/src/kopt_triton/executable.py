"""Triton candidates as executables: on a GPU, or in the interpreter where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kopt.errors import CandidateError
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Build
from kopt.model.executable import BoundCall, Memory
from kopt.model.values import CallSpec, DictValue, ListValue, TensorRef, Value
from kopt.model.verification import Status
from kopt_torch.executable import PythonExecutable
from kopt_torch.tensors import OpenTensors
from kopt_triton.ahead import compile_ahead
from kopt_triton.architectures import STAND_IN, Architecture
from kopt_triton.cuda_stand_in import gpu_stand_in
from kopt_triton.failures import candidate_error
from kopt_triton.interpreter import BFLOAT16, interpreting
from kopt_triton.launches import launch_id
from kopt_triton.listings import KINDS, listings
from kopt_triton.resources import KernelResources, LoadedKernels, from_tools, in_order


@contextmanager
def explained(source: str, folder: Path) -> Iterator[None]:
    """Turn whatever the candidate's code raises into CandidateError."""
    try:
        yield
    except Exception as error:
        raise candidate_error(error, source, folder) from error


class TritonExecutable(PythonExecutable):
    """A Triton candidate on a GPU.

    ``build.resources["kernels"]`` and ``build.binary_id`` are empty until the first launch, which
    is what compiles kernels.
    """

    def __init__(self, build: Build, entry: Any, candidate: Candidate, folder: Path) -> None:
        super().__init__(build, entry, candidate.chosen)
        self._source = candidate.source
        self._folder = folder
        self._launch_id = launch_id(candidate)
        self._kernels = LoadedKernels(entry.__module__)

    def callable_for(self, call: CallSpec, opened: OpenTensors) -> Callable[[], Any]:
        """Return a function that performs one call, and explains its failures."""
        with explained(self._source, self._folder):
            step = super().callable_for(call, opened)

        def explained_step() -> Any:
            # Not `with explained(...)`: this is inside what is timed.
            try:
                return step()
            except Exception as error:
                raise candidate_error(error, self._source, self._folder) from error

        return explained_step

    def synchronize(self) -> None:
        """Wait until every launch has finished. Raises CandidateError."""
        with explained(self._source, self._folder):
            super().synchronize()

    def after_launch(self) -> None:
        """Put what was compiled since the last look into ``build``."""
        if not self._kernels.changed():
            return
        kernels = [item.to_json() for item in self._kernels.resources()]
        resources = {**self.build.resources, "kernels": kernels}
        if chosen := self._kernels.configurations():
            resources["configurations"] = chosen
        self.build = self.build.model_copy(
            update={
                "resources": resources,
                "binary_id": self._kernels.binary_id(),
                "launch_id": self._launch_id,
            }
        )


class InterpretedExecutable(PythonExecutable):
    """A Triton candidate without a GPU: right or wrong, never how fast.

    Where an architecture is named, the first ``bind`` also compiles for it and puts the kernels'
    resources into ``build``.
    """

    timeable = False
    listing_kinds = KINDS

    def __init__(
        self,
        build: Build,
        entry: Any,
        candidate: Candidate,
        folder: Path,
        architecture: Architecture | None,
    ) -> None:
        super().__init__(build, entry, candidate.chosen)
        self._source = candidate.source
        self._folder = folder
        self._architecture = architecture

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Prepare a call. Raises CandidateError, ``unsupported`` where bfloat16 is involved."""
        if self._architecture is not None and "kernels" not in self.build.resources:
            self.ahead_of_time(call)
        if any(ref.dtype == "bfloat16" for ref in _tensors(call)):
            raise CandidateError(Status.UNSUPPORTED, BFLOAT16)
        return super().bind(call, memory)

    def callable_for(self, call: CallSpec, opened: OpenTensors) -> Callable[[], Any]:
        """Return a function that performs one call in the interpreter."""
        with self._interpreter():
            step = super().callable_for(call, opened)

        def interpreted_step() -> Any:
            with self._interpreter():
                return step()

        return interpreted_step

    @contextmanager
    def _interpreter(self) -> Iterator[None]:
        with (
            gpu_stand_in(self._architecture or STAND_IN, "cpu"),
            interpreting(),
            explained(self._source, self._folder),
        ):
            yield

    def ahead_of_time(self, call: CallSpec) -> list[KernelResources]:
        """Compile for the named architecture what ``call`` would launch; no memory is touched.

        The result is also put into ``build``, what was compiled before a failure as well. Raises
        CandidateError where a kernel does not compile or does not fit, or where no architecture
        was named.
        """
        architecture = self._named()
        found: dict[str, Any] = {}
        try:
            self._compile(call, found)
        finally:
            kernels = in_order(from_tools(each, architecture) for each in found.values())
            known = {
                "architecture": architecture.name,
                "kernels": [each.to_json() for each in kernels],
            }
            resources = {**self.build.resources, **known}
            self.build = self.build.model_copy(update={"resources": resources})
        return kernels

    def listing(self, kind: str, call: CallSpec) -> dict[str, str]:
        """Return the code of each kernel that ``call`` would launch, whether it fits or not.

        Raises CandidateError as ``ahead_of_time`` does.
        """
        found: dict[str, Any] = {}
        self._compile(call, found, fitting=False)
        return listings(list(found.values()), kind)

    def _named(self) -> Architecture:
        if self._architecture is None:
            raise CandidateError(
                Status.UNSUPPORTED, "no GPU architecture is named; add --target, as --target sm_90"
            )
        return self._architecture

    def _compile(self, call: CallSpec, found: dict[str, Any], *, fitting: bool = True) -> None:
        architecture = self._named()
        with explained(self._source, self._folder):
            compile_ahead(super().callable_for, call, architecture, found, fitting=fitting)

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """Refuse: an interpreter's time says nothing about a kernel. Raises CandidateError."""
        raise CandidateError(
            Status.UNSUPPORTED, "Triton's interpreter is never timed; measure on a GPU"
        )


def _tensors(call: CallSpec) -> Iterator[TensorRef]:
    """Yield every tensor of a call."""
    values: list[Value] = [item.value for item in (*call.arguments, *call.init)]
    yield from _inside([*values, *call.state.values(), *call.outputs])


def _inside(values: Iterable[Value]) -> Iterator[TensorRef]:
    for value in values:
        if isinstance(value, TensorRef):
            yield value
        elif isinstance(value, ListValue):
            yield from _inside(value.items)
        elif isinstance(value, DictValue):
            yield from _inside(value.items.values())
