"""The plugin: builds a C++ source into a shared library and calls its entry."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopt
from kopt.errors import CandidateError
from kopt.model.check import Check
from kopt.model.evaluation import Build
from kopt.model.origin import Origin
from kopt.model.record import content_id
from kopt.model.values import CallClaim, OutputClaim
from kopt.model.verification import Status
from kopt.runs.binaries import binary_id, launch_id
from kopt.worker.binding import default_arguments, names_of
from kopt_cpp import headers
from kopt_cpp.binding import c_arguments, check_count, check_required
from kopt_cpp.compiler import Compiler, compile_shared, find_compiler
from kopt_cpp.listing import SOURCE, assembly, sizes
from kopt_cpp.symbols import foreign_symbols

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.executable import BoundCall, BuildContext, Executable, Memory
    from kopt.model.problem import Problem
    from kopt.model.sanitizer import SanitizerReport
    from kopt.model.values import CallSpec

_SETTINGS = {"arguments", "flags", "requires"}
_INSTALL = "install a C++ compiler, as with `apt install g++` or `xcode-select --install`"


class CppBackend:
    """C++17 with OpenMP, for the machine's own instruction set."""

    class Options(kopt.Options):
        """Options of the cpp backend."""

        compiler: str | None = None
        """``g++``, ``clang++`` or a path; None: the first that is found."""
        flags: tuple[str, ...] = (
            "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
        )  # fmt: skip
        """Before the flags of a source's own header."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say which compiler is used and whether it has OpenMP."""
        compiler = find_compiler(self.options.compiler)
        if compiler is None:
            wanted = self.options.compiler or "g++, clang++ or c++"
            return [Check(name="c++ compiler", state="fail", detail=f"no {wanted}", fix=_INSTALL)]
        if not compiler.openmp:
            fix = "install its OpenMP runtime (libomp-dev with clang++), or use g++"
            detail = f"{compiler.version}, no OpenMP: kernels run on one core"
            return [Check(name="c++ compiler", state="warn", detail=detail, fix=fix)]
        return [Check(name="c++ compiler", state="ok", detail=compiler.version)]

    @kopt.hookimpl
    def kopt_build(
        self, problem: Problem, candidate: Candidate, context: BuildContext
    ) -> Executable | None:
        """Compile, or take an intact earlier build of the same source, flags and compiler."""
        if candidate.language != "cpp":
            return None
        start = time.monotonic()
        compiler = find_compiler(self.options.compiler)
        if compiler is None:
            raise CandidateError(Status.UNSUPPORTED, f"no C++ compiler: {_INSTALL}")
        flags = [*self._flags(candidate, compiler), *_definitions(candidate)]
        read = headers.contents(candidate.source, compiler, flags)
        key = content_id("cpp", candidate.source, flags, compiler.to_json(), _cpu_flags(), read)
        folder = context.cached(key)
        cached = folder is not None
        if folder is None:
            folder = _compile(compiler, candidate, flags, context, key)
        seconds = time.monotonic() - start
        return CppExecutable(candidate, folder / "kernel.so", compiler, flags, seconds, cached)

    def _flags(self, candidate: Candidate, compiler: Compiler) -> list[str]:
        unknown = set(candidate.settings) - _SETTINGS
        if unknown:
            raise CandidateError(
                Status.PARSE_ERROR,
                f"unknown key {', '.join(sorted(unknown))} in the kopt header; known: entry, "
                f"language, knobs, {', '.join(sorted(_SETTINGS))}",
            )
        for name, value in candidate.settings.items():
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise CandidateError(
                    Status.PARSE_ERROR,
                    f'{name} in the kopt header is {value!r}; write a list: {name} = ["...", "..."]',
                )
        openmp = ["-fopenmp"] if compiler.openmp else []
        return [*self.options.flags, *openmp, *candidate.settings.get("flags", [])]


def _definitions(candidate: Candidate) -> list[str]:
    return [f"-D{name}={_c_literal(value)}" for name, value in sorted(candidate.chosen.items())]


def _c_literal(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _cpu_flags() -> str:
    """What ``-march=native`` depends on: a build folder may move to another machine."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    except OSError:
        pass  # no such file outside Linux
    return ""


def _compile(
    compiler: Compiler, candidate: Candidate, flags: list[str], context: BuildContext, key: str
) -> Path:
    folder = context.scratch()
    source = folder / SOURCE
    source.write_text(candidate.source, encoding="utf-8")
    log = compile_shared(compiler, source, folder / "kernel.so", flags)
    (folder / "build.log").write_text(log, encoding="utf-8")
    return context.keep(key, folder)


class CppExecutable:
    """A loaded shared library; see kopt.model.executable.Executable."""

    timeable = True
    listing_kinds = ("asm",)

    def __init__(
        self, candidate: Candidate, library: Path, compiler: Compiler, flags: list[str],
        seconds: float, cached: bool,
    ) -> None:  # fmt: skip
        """``compiler`` and ``flags``: what ``library`` was made with."""
        content = library.read_bytes()
        self.build = Build(
            backend="cpp", binary_id=binary_id(content), seconds=seconds,
            launch_id=launch_id(
                [candidate.entry, {k: v for k, v in candidate.settings.items() if k != "flags"}],
                candidate.chosen,
            ),
            cached=cached, resources=sizes(content),
            log=(library.parent / "build.log").read_text(encoding="utf-8"),
        )  # fmt: skip
        self._candidate = candidate
        self._compiler = compiler
        self._flags = flags
        self._content = content
        try:
            self._function = ctypes.CDLL(str(library))[candidate.entry]
        except OSError as error:
            raise CandidateError(Status.LAUNCH_FAILED, f"it cannot be loaded: {error}") from error
        except AttributeError as error:
            raise CandidateError(
                Status.PARSE_ERROR, f'it exports no extern "C" function {candidate.entry!r}'
            ) from error
        self._function.restype = None

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Evaluate the arguments once; a launch is one foreign call."""
        expressions = self._candidate.settings.get("arguments") or default_arguments(call)
        names = names_of(call, memory.address)
        requires = self._candidate.settings.get("requires", [])
        check_required(requires, {**self._candidate.chosen, **names})
        arguments = c_arguments(expressions, names, self._candidate.chosen)
        check_count(self._candidate.source, self._candidate.entry, expressions)
        return CppCall(self._function, arguments, call, memory)

    def synchronize(self) -> None:
        """Nothing to wait for: calls return when they are done."""

    def origin(self, bound: BoundCall) -> Origin:
        """Say which foreign functions the library asks for; nothing is run."""
        return Origin(symbols=foreign_symbols(self._content))

    def sanitize(self, bound: BoundCall) -> SanitizerReport:
        """Run a bound call in programs of their own, each built for one of the sanitizers."""
        from kopt_cpp.sanitized_call import SanitizedCall
        from kopt_cpp.sanitizing import sanitize

        assert isinstance(bound, CppCall)
        call = SanitizedCall(self._candidate.entry, bound.arguments, bound.call, bound.memory)
        return sanitize(self._candidate.source, self._compiler, self._flags, call)

    def listing(self, kind: str, call: CallSpec) -> dict[str, str]:
        """Return the compiler's assembly of the whole file. Raises CandidateError."""
        return {SOURCE: assembly(self._compiler, self._candidate.source, self._flags)}

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """A CPU has no clock of its own."""
        return None


class CppCall:
    """One bound foreign call; results go straight to the judge's outputs."""

    def __init__(self, function: Any, arguments: list[Any], call: CallSpec, memory: Memory) -> None:
        self.arguments, self.call, self.memory = arguments, call, memory
        self._function = function
        self._claim = CallClaim(
            structure=call.structure,
            outputs=tuple(
                OutputClaim(dtype=ref.dtype, shape=ref.shape, device="cpu") for ref in call.outputs
            ),
        )

    def launch(self) -> None:
        """Call the function."""
        self._function(*self.arguments)

    def collect(self) -> CallClaim:
        """Describe the outputs, whose form a destination-passing call cannot change."""
        return self._claim
