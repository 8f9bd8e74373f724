"""CUDA C++ in a Python file: strings that its own code compiles and launches through cupy."""

from __future__ import annotations

import ast
from contextlib import contextmanager, nullcontext
from time import perf_counter  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import CandidateError
from kopt.model.evaluation import Build
from kopt.model.record import content_id
from kopt.model.verification import Status
from kopt_cuda.plan import Launch, Plan
from kopt_cuda.python_kernels import CompiledKernels
from kopt_cuda.python_lines import FILE, candidate_error
from kopt_torch.executable import PythonExecutable
from kopt_torch.modules import load_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kopt.model.candidate import Candidate
    from kopt.model.executable import BuildContext
    from kopt.model.values import CallSpec
    from kopt_torch.tensors import OpenTensors


def refuse_plan(candidate: Candidate) -> None:
    """Raise CandidateError where the header also has a launch plan, which nothing would follow."""
    planned = sorted(set(candidate.settings) & {*Plan.model_fields, *Launch.model_fields})
    if planned:
        raise CandidateError(
            Status.PARSE_ERROR,
            f"{FILE}: {planned[0]} in the header is of a launch plan, and in this file the Python "
            "code launches; remove it, or put the CUDA source into a .cu file",
        )


def identity(candidate: Candidate, architecture: str, compiler: str) -> str:
    """Return a hash in place of the binary's, which cupy keeps to itself.

    It is of the file's syntax tree (comments and layout of the Python do not count, each character
    of the CUDA strings does), the knob values, the architecture and the compiler: so of all that
    decides how kernels are launched, too.
    """
    try:
        tree = ast.dump(ast.parse(candidate.source))
    except (SyntaxError, ValueError):
        tree = candidate.source
    return content_id(
        "cuda-python", tree, candidate.entry, candidate.chosen, architecture, compiler
    )


@contextmanager
def explained(source: str, folder: Path) -> Iterator[None]:
    """Turn whatever the candidate's code raises into CandidateError."""
    try:
        yield
    except Exception as error:
        raise candidate_error(error, source, folder) from error


def build_on_gpu(
    candidate: Candidate, context: BuildContext, architecture: str, compiler: str
) -> PythonFormExecutable:
    """Import the file. Kernels that it only launches later are compiled then.

    Raises CandidateError.
    """
    started = perf_counter()
    refuse_plan(candidate)
    folder = context.scratch()
    kernels = CompiledKernels()
    with explained(candidate.source, folder), kernels.watching():
        entry = load_entry(candidate, folder)
    known_as = identity(candidate, architecture, compiler)
    build = Build(
        backend="cuda", binary_id=known_as, launch_id=known_as,
        seconds=perf_counter() - started,
        resources={"architecture": architecture, "compiler": compiler},
    )  # fmt: skip
    return PythonFormExecutable(build, entry, candidate, folder, kernels)


class PythonFormExecutable(PythonExecutable):
    """A file's Python entry on a GPU; cupy launches on torch's current stream.

    ``build.resources["kernels"]`` has, from the first launch on, what was compiled so far.
    """

    def __init__(
        self, build: Build, entry: Any, candidate: Candidate, folder: Path,
        kernels: CompiledKernels,
    ) -> None:  # fmt: skip
        super().__init__(build, entry, candidate.chosen)
        self._source, self._folder, self._kernels = candidate.source, folder, kernels
        self._torchs_stream = TorchsStream()

    def callable_for(self, call: CallSpec, opened: OpenTensors) -> Callable[[], Any]:
        """Return a function that performs one call, and explains its failures."""
        with explained(self._source, self._folder), self._kernels.watching(), self._torchs_stream():
            step = super().callable_for(call, opened)
        torchs_stream, first = self._torchs_stream, True

        def launch() -> Any:
            # Not `with explained(...)`: this is inside what is timed.
            nonlocal first
            try:
                if not first:
                    with torchs_stream():
                        return step()
                first = False
                with self._kernels.watching(), torchs_stream():
                    return step()
            except Exception as error:
                raise candidate_error(error, self._source, self._folder) from error

        return launch

    def synchronize(self) -> None:
        """Wait until every launch has finished. Raises CandidateError."""
        with explained(self._source, self._folder):
            super().synchronize()

    def trim(self) -> None:
        """Give cached device memory back, cupy's too."""
        import cupy

        super().trim()
        cupy.get_default_memory_pool().free_all_blocks()

    def after_launch(self) -> None:
        """Put what was compiled since the last look into ``build``."""
        if not self._kernels.changed():
            return
        with explained(self._source, self._folder):
            kernels = self._kernels.resources(str(self.build.resources["architecture"]))
        resources = {**self.build.resources, "kernels": [each.to_json() for each in kernels]}
        self.build = self.build.model_copy(update={"resources": resources})


_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_AS_IT_IS = nullcontext()


class TorchsStream:
    """Makes torch's current stream cupy's for a while; next to nothing where it is already."""

    def __init__(self) -> None:
        import cupy

        self._of_cupy = cupy.cuda.get_current_stream
        self._known: dict[int, Any] = {}
        """By address. Kept: dropping one must not end the stream, which is torch's."""

    def __call__(self) -> Any:
        """Return the scope."""
        address = _raw_stream(_current_device())
        if self._of_cupy().ptr == address:
            return _AS_IT_IS
        if address not in self._known:
            self._known[address] = cupy_stream(address)
        return self._known[address]


class _Foreign:
    """A stream by its address, in the form of the CUDA stream protocol."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def cupy_stream(address: int) -> Any:
    """Return cupy's object for a stream that it does not own."""
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):  # since cupy 14, where ExternalStream warns
        return cupy.cuda.Stream.from_external(_Foreign(address))
    return cupy.cuda.ExternalStream(address)
