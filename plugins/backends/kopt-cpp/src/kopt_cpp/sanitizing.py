"""Running a call under the compiler's address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kopt.env import candidate_environment
from kopt.model.sanitizer import SANITIZER_SECONDS, SanitizerFinding, SanitizerReport
from kopt_cpp.sanitized_call import CALLS, DONE, MAIN, TOKEN
from kopt_cpp.sanitizer_logs import findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kopt_cpp.compiler import Compiler
    from kopt_cpp.sanitized_call import SanitizedCall

MOST_BYTES = 256 << 20
"""Of a call's tensors: beyond it, a run takes too long and files too much room."""
_NATIVE = Path(__file__).parent / "native"
_MARGIN = 5.0
"""Seconds of the deadline kept for writing inputs and reading logs."""
_REPORTED = 86
"""Exit code of a program whose sanitizer reported something."""
_MOST_OUTPUT = 1 << 20
_COMMON = f"log_path=log:exitcode={_REPORTED}:abort_on_error=0"
_OPTIONS = {
    "address": (
        "ASAN_OPTIONS",
        # Wide red zones; scratch that is kept between calls is no fault, nor is free() of new[].
        "redzone=2048:max_redzone=2048:detect_leaks=0:detect_stack_use_after_return=1:"
        "alloc_dealloc_mismatch=0:detect_odr_violation=0:allocator_may_return_null=1",
    ),
    "undefined": ("UBSAN_OPTIONS", "print_stacktrace=1"),
    "thread": ("TSAN_OPTIONS", "halt_on_error=0:atexit_sleep_ms=300:report_signal_unsafe=0"),
}
TOOLS = tuple(_OPTIONS)
_INSTALL = {
    "address": "libasan", "undefined": "libubsan", "thread": "libtsan",
}  # fmt: skip
_NAMES_SANITIZERS = re.compile(
    r"no_sanitize|__SANITIZE_|__[atu]b?san_|__sanitizer_|\b(address|thread|undefined)_sanitizer"
)
_UNSEEN_ORDER = re.compile(
    r"atomic_(thread|signal)_fence|__sync_synchronize|pragma\s+omp\s+flush|_mm_[ml]fence|"
    r'\basm\b[^;]*"[^"]*\b(lock|xchg|cmpxchg\w*|mfence|dmb|ldaxr|stlxr)\b'
)
_CALLS_OPENMP = re.compile(rb"GOMP_|omp_")
_UNDEFINED_REFERENCE = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?([\w.]+)")


class _SkippedError(Exception):
    """A tool was not run to the end; its text says why."""


@dataclass(frozen=True)
class _Ended:
    code: int | None
    """None: it was killed at the deadline."""
    output: str


def sanitize(
    source: str, compiler: Compiler, flags: Sequence[str], call: SanitizedCall
) -> SanitizerReport:
    """Build and run a call once for each tool, all at the same time."""
    start = time.monotonic()
    if call.nbytes > MOST_BYTES:
        reason = (
            f"the call's tensors have {call.nbytes >> 20} MiB, more than {MOST_BYTES >> 20}; "
            "give the problem a small workload too"
        )
        return SanitizerReport(skipped=dict.fromkeys(TOOLS, reason), seconds=0.0)
    with tempfile.TemporaryDirectory(prefix="kopt-sanitizers-") as name:
        folder = Path(name)
        (folder / "kernel.cpp").write_text(source, encoding="utf-8")
        job = _Job(source, compiler, flags, folder, call.write(folder), start)
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            outcomes = dict(zip(TOOLS, pool.map(job.outcome, TOOLS), strict=True))
    return SanitizerReport(
        ran=tuple(tool for tool, found in outcomes.items() if not isinstance(found, str)),
        skipped={tool: found for tool, found in outcomes.items() if isinstance(found, str)},
        findings=tuple(f for found in outcomes.values() if not isinstance(found, str) for f in found),
        seconds=time.monotonic() - start,
    )  # fmt: skip


class _Job:
    """One candidate's programs, a folder for each tool."""

    def __init__(
        self, source: str, compiler: Compiler, flags: Sequence[str], folder: Path,
        tensors: Mapping[int, str], start: float,
    ) -> None:  # fmt: skip
        self._source = source
        self._compiler = compiler
        self._flags = flags
        self._folder = folder
        self._tensors = tensors
        self._deadline = start + SANITIZER_SECONDS - _MARGIN

    def outcome(self, tool: str) -> tuple[SanitizerFinding, ...] | str:
        """Return what a tool found, or why it was not run."""
        place = self._folder / tool
        place.mkdir()
        try:
            if tool == "thread" and (order := _UNSEEN_ORDER.search(self._source)):
                raise _SkippedError(
                    f"it does not see what {order[0].split(chr(34))[0].strip()} orders; atomics, "
                    "mutexes and OpenMP's own constructs it does see"
                )
            self._build(tool, place)
            found = self._run(tool, place)
        except _SkippedError as skipped:
            return str(skipped)
        named = _NAMES_SANITIZERS.search(self._source)
        if not found and named:
            return f"the source speaks of {named[0]!r}: clean proves nothing; remove it"
        return found

    def _build(self, tool: str, place: Path) -> None:
        compiler = self._compiler
        instrumented = [f"-fsanitize={tool}", "-g", "-O1", "-fno-omit-frame-pointer"]
        if tool == "undefined":
            instrumented.append("-fno-sanitize=vptr")  # which needs type information
        kernel = [*self._flags, "-fno-lto", *instrumented, "-c", "kernel.cpp"]
        log = self._compile(tool, [*kernel, "-o", f"{tool}/kernel.o"])
        if "[-Wtsan]" in log:
            raise _SkippedError("it does not see what a fence orders, which the kernel uses")
        plain = ["-std=c++17", "-g", "-O1", "-fno-omit-frame-pointer", f"-I{_NATIVE}"]
        self._compile(tool, [*plain, "-c", MAIN, "-o", f"{tool}/main.o"])
        objects = [f"{tool}/kernel.o", f"{tool}/main.o"]
        if compiler.openmp and tool != "thread":
            objects.append("-fopenmp")
        elif compiler.openmp and _CALLS_OPENMP.search((place / "kernel.o").read_bytes()):
            # It takes a CPU a second, more than all the rest of this tool's build.
            runtime = [*plain, f"-fsanitize={tool}", "-c", str(_NATIVE / "openmp.cpp")]
            self._compile(tool, [*runtime, "-o", f"{tool}/openmp.o"])
            objects.append(f"{tool}/openmp.o")
        libraries = [f for f in self._flags if f.startswith(("-l", "-L", "-Wl,", "-pthread"))]
        link = [f"-fsanitize={tool}", *objects, "-pthread", *libraries]
        self._compile(tool, [*link, "-o", f"{tool}/program"])

    def _compile(self, tool: str, arguments: Sequence[str]) -> str:
        done = self._ended([self._compiler.path, *arguments], self._folder)
        if done.code == 0:
            return done.output
        if done.code is None:
            raise _SkippedError(f"it was not built within {SANITIZER_SECONDS:g} s")
        if not self._has_runtime(tool):
            raise _SkippedError(
                f"{self._compiler.path} links no {tool} sanitizer here; install {_INSTALL[tool]} "
                "for it (with clang++: its compiler-rt)"
            )
        if missing := _UNDEFINED_REFERENCE.search(done.output):
            raise _SkippedError(
                f"the kernel needs {missing[1]}, which the program around it lacks"
                + (" (an OpenMP runtime that this tool understands)" if tool == "thread" else "")
            )
        lines = [line for line in done.output.splitlines() if "error" in line]
        raise _SkippedError(f"it cannot be built for it: {(lines or ['no word'])[0][:300]}")

    def _has_runtime(self, tool: str) -> bool:
        probe = self._folder / tool / "probe.cpp"
        probe.write_text("int main() {}\n", encoding="utf-8")
        command = [self._compiler.path, f"-fsanitize={tool}", str(probe), "-o", f"{probe}.out"]
        return self._ended(command, self._folder).code == 0

    def _run(self, tool: str, place: Path) -> tuple[SanitizerFinding, ...]:
        token = secrets.token_hex(16)
        (place / TOKEN).write_text(token, encoding="ascii")
        command = [sys.executable, "-I", "-S", str(_NATIVE / "launch.py"), str(place / "program")]
        done = self._ended(command, place, _environment(tool, place))
        log = "".join(_text(path) for path in sorted(place.glob("log.*")))
        found = findings(tool, log, self._tensors)
        if found:
            return found
        if done.code is None:
            raise _SkippedError(
                f"{CALLS} calls did not end within {SANITIZER_SECONDS:g} s, builds included"
            )
        if done.code or _text(place / DONE) != token:
            said = (done.output or log).strip()[-300:]
            raise _SkippedError(
                f"the program {_how(done.code)} before the kernel returned"
                + (f": {said}" if said else "")
            )
        return ()

    def _ended(
        self, command: Sequence[str], where: Path, environment: dict[str, str] | None = None
    ) -> _Ended:
        """Run a command in a group of its own until it ends or the deadline comes."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=where, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=output, start_new_session=True,
            )  # fmt: skip
            code: int | None = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(max(0.1, self._deadline - time.monotonic()))
            finally:
                with suppress(ProcessLookupError):  # nobody of the group is left
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return _Ended(code, output.read(_MOST_OUTPUT).decode(errors="replace"))


def _environment(tool: str, place: Path) -> dict[str, str]:
    name, options = _OPTIONS[tool]
    threads = {"OMP_NUM_THREADS": "4", "OMP_DYNAMIC": "false"}
    return {**candidate_environment(place), **threads, name: f"{_COMMON}:{options}"}


def _text(path: Path) -> str:
    """Return the beginning of a file; nothing where it is missing or no file."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_MOST_OUTPUT).decode(errors="replace")


def _how(code: int) -> str:
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with code {code}"
