"""The system's C++ compiler: finding it, its identity, and running it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from kopt.errors import CandidateError
from kopt.model.record import Record
from kopt.model.verification import Status

NAMES = ("g++", "clang++", "c++")
_MOST_LOG = 4000


class Compiler(Record):
    """A compiler that was found."""

    path: str
    version: str
    openmp: bool
    """Whether it links OpenMP programs here."""


@functools.cache
def find_compiler(wanted: str | None = None) -> Compiler | None:
    """Return the named compiler, or the first of g++, clang++ and c++; None if there is none."""
    for name in [wanted] if wanted else NAMES:
        path = shutil.which(name)
        if path:
            return Compiler(path=path, version=_version(path), openmp=_links_openmp(path))
    return None


def _version(path: str) -> str:
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return done.stdout.splitlines()[0] if done.stdout else "unknown"


def _links_openmp(path: str) -> bool:
    program = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"
    done = subprocess.run(
        [path, "-x", "c++", "-fopenmp", "-o", "/dev/null", "-"], input=program, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode == 0


def compile_shared(compiler: Compiler, source: Path, target: Path, flags: list[str]) -> str:
    """Compile a shared library and return the compiler's warnings.

    Raises CandidateError (COMPILE_ERROR) with the compiler's own words.
    """
    return _run(compiler, source, [*flags, "-shared", "-fPIC", "-o", str(target)])


def compile_assembly(compiler: Compiler, source: Path, target: Path, flags: list[str]) -> None:
    """Write the assembly that the same compilation goes through. Raises CandidateError.

    Without link-time optimisation, of which there is no assembly before the linker.
    """
    _run(compiler, source, [*flags, "-fPIC", "-fno-lto", "-S", "-o", str(target)])


def _run(compiler: Compiler, source: Path, arguments: list[str]) -> str:
    # By its bare name, so that neither messages nor __FILE__ depend on where it is built.
    command = [compiler.path, *arguments, source.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=source.parent)
    log = _readable(done.stderr, source)
    if done.returncode != 0:
        raise CandidateError(Status.COMPILE_ERROR, log or f"{compiler.path} failed without a word")
    return log


def _readable(log: str, source: Path) -> str:
    text = re.sub(re.escape(str(source.parent)) + "/", "", log).strip()
    return text if len(text) <= _MOST_LOG else text[:_MOST_LOG] + "\n[cut]"
