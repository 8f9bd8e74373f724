"""The Python form compiled for a GPU that is not here: its launcher runs on shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING, Any, Never

import torch

from kopt.errors import CandidateError
from kopt.model.evaluation import Build
from kopt.model.record import content_id
from kopt.model.verification import Status
from kopt_cuda import limits
from kopt_cuda.ahead import ELSEWHERE
from kopt_cuda.architectures import PLAIN_SHARED
from kopt_cuda.compiling import CUBIN, LOG, warnings_of
from kopt_cuda.includes import contents
from kopt_cuda.listing import KINDS, listing_of
from kopt_cuda.plan import FILE as CUDA_FILE
from kopt_cuda.program import Recipe
from kopt_cuda.python_form import explained, identity, refuse_plan
from kopt_cuda.python_lines import FILE, in_file, missing_headers
from kopt_cuda.python_stand_in import Code, MetaTensors, NotedLaunch, Notes
from kopt_cuda.resources import KernelResources, resources_of
from kopt_torch.executable import PythonExecutable
from kopt_torch.modules import load_entry

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.executable import BoundCall, BuildContext, Memory
    from kopt.model.values import CallSpec
    from kopt_cuda.architectures import Architecture
    from kopt_cuda.toolchain import Toolchain

_LEAST = "make RawModule or RawKernel at the top of the file, so that they can be compiled"


def build_ahead(
    candidate: Candidate, context: BuildContext, architecture: Architecture, toolchain: Toolchain
) -> PythonAheadExecutable:
    """Import the file with stand-ins for cupy's classes, and compile what it made of them.

    Raises CandidateError.
    """
    started = perf_counter()
    refuse_plan(candidate)
    folder = context.scratch()
    notes = Notes(folder)
    with notes.taking(architecture), explained(candidate.source, folder):
        entry = load_entry(candidate, folder)
    compiler = Compiler(candidate.source, context, architecture, toolchain)
    compiler.compile(notes)
    known_as = identity(candidate, architecture.name, toolchain.detail)
    build = Build(
        backend="cuda", binary_id=known_as, launch_id=known_as,
        seconds=perf_counter() - started, log=compiler.warnings,
        resources={
            "architecture": architecture.name, "compiler": toolchain.detail,
            "kernels": [each.to_json() for each in compiler.kernels()],
        },
    )  # fmt: skip
    return PythonAheadExecutable(build, entry, candidate, folder, notes, compiler)


@dataclass(frozen=True)
class CompiledCode:
    """One source and what was made of it."""

    source: str
    recipe: Recipe
    folder: Path
    kernels: dict[str, KernelResources]

    @property
    def cubin(self) -> Path:
        """The binary's file."""
        return self.folder / CUBIN


class Compiler:
    """Compiles what was noted for one architecture, as cupy would there."""

    def __init__(
        self, source: str, context: BuildContext, architecture: Architecture, toolchain: Toolchain
    ) -> None:
        self._source, self._context, self._toolchain = source, context, toolchain
        self.architecture = architecture
        self.warnings = ""
        self._done: dict[Code, CompiledCode] = {}

    def compile(self, notes: Notes) -> None:
        """Compile what is new. Raises CandidateError, with lines of the candidate's file."""
        for code, line in notes.codes.items():
            if code not in self._done:
                self._done[code] = self._compiled(code, line)
        for code, name, line in notes.wanted:
            self.kernel(code, name, line)

    def kernels(self) -> list[KernelResources]:
        """Return what each kernel uses by itself."""
        return [each for part in self._done.values() for each in part.kernels.values()]

    def kernel(self, code: Code, name: str, line: int | None) -> KernelResources:
        """Return a kernel by its name. Raises CandidateError where there is none."""
        found = self._done[code].kernels
        if name in found:
            return found[name]
        base = name.partition("<")[0].rpartition("::")[2].strip()
        alike = [each for mangled, each in found.items() if f"{len(base)}{base}" in mangled]
        if code.instance and len(alike) == 1:
            return alike[0]
        known = ", ".join(found) or "none"
        raise CandidateError(
            Status.COMPILE_ERROR,
            f"{_at(line)}the CUDA source has no kernel {name!r}; it has: {known}. Declare it as "
            'extern "C" __global__ void',
        )

    def listings(self, kind: str) -> dict[str, str]:
        """Return the code of each source, by the kernels in it. Raises CandidateError."""
        found: dict[str, str] = {}
        for part in self._done.values():
            name = " ".join(part.kernels) or "no kernel"
            found[f"{name} ({len(found) + 1})" if name in found else name] = listing_of(part, kind)
        return found

    def _compiled(self, code: Code, line: int | None) -> CompiledCode:
        import cupy

        includes = (str(Path(cupy.__file__).parent / "_core" / "include"),)
        options = [*code.options, "-ftz=true"]  # cupy adds it to whatever is asked for
        if self._toolchain.kind == "nvrtc":
            options.append("--device-as-default-execution-space")
        text = code.source
        if code.instance:
            text += f"\nconstexpr auto kopt_instance = &{code.instance};\n"
        recipe = Recipe(self._toolchain, self.architecture.name, tuple(options), includes)
        folder = self._made(text, recipe, code, line)
        log = (folder / LOG).read_text(encoding="utf-8")
        if said := warnings_of(log):
            self.warnings += in_file(said, code.source, self._source, (CUDA_FILE,)) + "\n"
        self.warnings += missing_headers(code.source, self._source)
        return CompiledCode(text, recipe, folder, resources_of(log))

    def _made(self, text: str, recipe: Recipe, code: Code, line: int | None) -> Path:
        """Return the folder of a build, or of an intact earlier one of the same."""
        own = [*recipe.includes, *(each[2:] for each in recipe.options if each.startswith("-I"))]
        headers = contents(text, own, self._toolchain.includes)
        parts = (recipe.target, recipe.options, recipe.toolchain.to_json(), headers)
        key = content_id("cuda-python", text, *parts)
        folder = self._context.cached(key) if headers is not None else None
        if folder is not None:
            return folder
        folder = self._context.scratch()
        try:
            recipe.compile(text, folder)
        except CandidateError as error:
            said = in_file(error.detail, code.source, self._source, (CUDA_FILE,))
            where = "" if FILE in said else _at(line)
            raise CandidateError(error.status, f"{where}{said}") from error
        return folder if headers is None else self._context.keep(key, folder)


class PythonAheadExecutable(PythonExecutable):
    """Resources of the kernels and, where the launcher can be followed, of each launch."""

    timeable = False
    listing_kinds = KINDS

    def __init__(
        self, build: Build, entry: Any, candidate: Candidate, folder: Path, notes: Notes,
        compiler: Compiler,
    ) -> None:  # fmt: skip
        super().__init__(build, entry, candidate.chosen)
        self._source, self._folder = candidate.source, folder
        self._notes, self._compiler = notes, compiler

    def ahead_of_time(self, call: CallSpec) -> list[KernelResources]:
        """Return what each launch of a call would use; the result is also put into ``build``.

        The launcher runs on tensors without content. Where it needs more than that, the kernels
        that were found until then are returned by themselves, and ``build.resources`` says why in
        ``not_followed``. Raises CandidateError where nothing was found, does not compile, or does
        not fit the GPU.
        """
        why = self._follow(call)
        self._compiler.compile(self._notes)
        kernels = self._compiler.kernels() or self._nothing(why)
        self._report(kernels, why)  # also where a launch is refused
        if not why:
            kernels = [self._used(each) for each in self._notes.launches]
            self._report(kernels, why)
        return kernels

    def listing(self, kind: str, call: CallSpec) -> dict[str, str]:
        """Return the code of each source that a call makes use of, or was made before it.

        Raises CandidateError where none is found, or (unsupported) where no tool reads the binary.
        """
        why = self._follow(call)
        self._compiler.compile(self._notes)
        return self._compiler.listings(kind) or self._nothing(why)

    def _nothing(self, why: str) -> Never:
        raise CandidateError(
            Status.UNSUPPORTED,
            f"no CUDA source was found without a GPU ({why or 'nothing was launched'}); "
            f"{_LEAST}, or use a .cu file with a launch plan, which can be compiled anywhere",
        )

    def _report(self, kernels: list[KernelResources], why: str) -> None:
        resources = {**self.build.resources, "kernels": [each.to_json() for each in kernels]}
        if why:
            resources["not_followed"] = why
        found = {"resources": resources, "log": self._compiler.warnings}
        self.build = self.build.model_copy(update=found)

    def _follow(self, call: CallSpec) -> str:
        """Run the launcher; return why that was not possible."""
        self._notes.launches.clear()
        opened: Any = MetaTensors()
        try:
            with (
                self._notes.taking(self._compiler.architecture), torch.no_grad(),
                explained(self._source, self._folder),
            ):  # fmt: skip
                with torch.device("meta"):  # a module's parameters need no memory either
                    step = super().callable_for(call, opened)
                step()
        except CandidateError as error:
            return error.detail
        return "" if self._notes.launches else "nothing was launched"

    def _used(self, noted: NotedLaunch) -> KernelResources:
        launch, where = noted.launch, _at(noted.line)
        kernel = self._compiler.kernel(noted.code, launch.kernel, noted.line)
        used = limits.used_by(kernel, launch)
        opted_in = noted.opted_in > PLAIN_SHARED and launch.shared <= noted.opted_in
        if used.shared_bytes > PLAIN_SHARED and not opted_in:
            raise CandidateError(
                Status.LAUNCH_FAILED,
                f"{where}launch of {launch.kernel}: {used.shared_bytes} bytes of shared memory are "
                f"more than a block gets unasked; before it, set "
                f"kernel.max_dynamic_shared_size_bytes = {launch.shared}",
            )
        try:
            limits.check("", 0, launch, used, self._compiler.architecture)
        except CandidateError as error:
            detail = error.detail.removeprefix(f"{CUDA_FILE}: ")
            raise CandidateError(error.status, f"{where}{detail}") from error
        return used

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Follow the call, then refuse. Raises CandidateError (unsupported)."""
        self.ahead_of_time(call)
        name = self._compiler.architecture.name
        raise CandidateError(Status.UNSUPPORTED, f"it was compiled for {name}, and {ELSEWHERE}")

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """Refuse. Raises CandidateError (unsupported)."""
        raise CandidateError(Status.UNSUPPORTED, ELSEWHERE)


def _at(line: int | None) -> str:
    return f"{FILE}:{line}: " if line else f"{FILE}: "
