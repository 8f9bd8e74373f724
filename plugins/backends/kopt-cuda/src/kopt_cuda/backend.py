"""The plugin: what kopt calls. It imports neither torch nor cupy until a candidate is built."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import kopt
from kopt.errors import CandidateError
from kopt.model.evaluation import Build
from kopt.model.kernel_file import is_python
from kopt.model.verification import Status
from kopt.runs.binaries import binary_id, launch_id
from kopt_cuda.ahead import ELSEWHERE, AheadExecutable
from kopt_cuda.architectures import named
from kopt_cuda.checks import machine_checks
from kopt_cuda.compiling import warnings_of
from kopt_cuda.program import compiled
from kopt_cuda.toolchain import INSTALL, cupy_distribution, find_toolchain

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.check import Check
    from kopt.model.executable import BuildContext, Executable
    from kopt.model.problem import Problem
    from kopt_cuda.architectures import Architecture
    from kopt_cuda.program import Program
    from kopt_cuda.toolchain import Toolchain

_NO_COMPILER = f"no compiler for CUDA C++: {INSTALL}"


class CudaBackend:
    """Builds candidates of language ``cuda``."""

    class Options(kopt.Options):
        """Options of the cuda backend."""

        compiler: str | None = None
        """``nvrtc``, ``nvcc`` or a path of nvcc; None: NVRTC, else nvcc."""
        flags: tuple[str, ...] = ()
        """Before the flags of a source's own header; the same for NVRTC and nvcc."""
        include: tuple[str, ...] = ()
        """Folders with headers, searched before CUDA's own."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say which compiler is used, and what its kernels can run on."""
        return machine_checks(self.options.compiler)

    @kopt.hookimpl
    def kopt_warm_up(self, purpose: str) -> None:
        """Import torch, which a build for a GPU takes."""
        if purpose == "cuda":
            importlib.import_module("kopt_cuda.executable")

    @kopt.hookimpl
    def kopt_build(
        self, problem: Problem, candidate: Candidate, context: BuildContext
    ) -> Executable | None:
        """Compile for the context's GPU, or for its architecture where no GPU is there.

        None for another language. Raises CandidateError.
        """
        if candidate.language != "cuda":
            return None
        start = time.monotonic()
        on_gpu = context.device is not None and context.device.kind == "cuda"
        name = context.device.architecture if on_gpu and context.device else context.architecture
        if not name.startswith("sm_"):
            raise CandidateError(
                Status.UNSUPPORTED,
                f"{ELSEWHERE}; CUDA C++ is compiled for a named GPU here: add --target sm_90",
            )
        toolchain = find_toolchain(self.options.compiler)
        if is_python(candidate.source, "cuda"):
            return _python_form(candidate, context, named(name), toolchain, on_gpu=on_gpu)
        if toolchain is None:
            raise CandidateError(Status.UNSUPPORTED, _NO_COMPILER)
        includes = [str(Path(each).expanduser()) for each in self.options.include]
        program = compiled(candidate, context, toolchain, named(name), self.options.flags, includes)
        build = _build_of(program, time.monotonic() - start, toolchain.detail)
        return _on_gpu(build, program) if on_gpu else AheadExecutable(build, program)


def _build_of(program: Program, seconds: float, compiler: str) -> Build:
    content = program.cubin.read_bytes()
    kernels = [each.to_json() for each in program.resources.values()]
    return Build(
        backend="cuda", binary_id=binary_id(content), seconds=seconds,
        launch_id=launch_id(program.plan.to_json() | {"flags": ()}, program.knobs),
        cached=program.cached, log=warnings_of(program.log),
        resources={
            "architecture": program.architecture.name, "compiler": compiler,
            "binary_bytes": len(content), "kernels": kernels,
        },
    )  # fmt: skip


def _python_form(
    candidate: Candidate, context: BuildContext, architecture: Architecture,
    toolchain: Toolchain | None, *, on_gpu: bool,
) -> Executable:  # fmt: skip
    """Build what its own Python launches: cupy compiles on a GPU, kopt's compiler elsewhere."""
    _require_cupy()
    if on_gpu:
        from kopt_cuda.python_form import build_on_gpu

        return build_on_gpu(candidate, context, architecture.name, cupy_distribution() or "")
    if toolchain is None:
        raise CandidateError(Status.UNSUPPORTED, _NO_COMPILER)
    from kopt_cuda.python_ahead import build_ahead

    return build_ahead(candidate, context, architecture, toolchain)


def _require_cupy() -> None:
    if cupy_distribution() is None:
        raise CandidateError(
            Status.INFRASTRUCTURE_ERROR,
            "cupy, which loads CUDA kernels, is not installed; pip install 'kopt-cuda[cuda12]' (or "
            "[cuda13], as the driver)",
        )


def _on_gpu(build: Build, program: Program) -> Executable:
    _require_cupy()
    from kopt_cuda.executable import CudaExecutable

    return CudaExecutable(build, program)
