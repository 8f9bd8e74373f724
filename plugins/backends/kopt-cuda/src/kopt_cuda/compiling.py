"""Compile a source to a cubin for one architecture, and say in the compiler's words what is wrong."""

from __future__ import annotations

import re
import subprocess
from struct import unpack_from
from typing import TYPE_CHECKING, Any, Literal

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda.plan import FILE
from kopt_cuda.standard_headers import STANDARD_HEADERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kopt_cuda.toolchain import Toolchain

Kind = Literal["cubin", "ptx"]
CUBIN, LOG, SOURCE, KNOBS = "kernel.cubin", "build.log", FILE, "knobs.h"
_MOST_LOG = 6000
_ELF_HEADER_BYTES = 64
_NOISE = re.compile(
    r"^\s*ptxas\s*(info|\.)|^\s+\d+ bytes stack frame|^\d+ (catastrophic )?errors? detected"
    r"|^Compilation terminated|^\s*$"
)
_UNKNOWN_TARGET = re.compile(
    r"(invalid value for|Unsupported gpu architecture|unsupported gpu architecture).*", re.I
)
_TOO_MUCH_SHARED = re.compile(r"Entry function '(\w+)' uses too much shared data \(0x([0-9a-f]+)")


def compile_cubin(
    toolchain: Toolchain, source: str, architecture: str, options: Sequence[str],
    includes: Sequence[str], folder: Path,
) -> None:  # fmt: skip
    """Write source, cubin and the compiler's log into ``folder``.

    Raises CandidateError: COMPILE_ERROR with the compiler's words, UNSUPPORTED where it does not
    know the architecture.
    """
    cubin = _compiled("cubin", toolchain, source, architecture, options, includes, folder)
    (folder / CUBIN).write_bytes(whole(cubin))


def compile_ptx(
    toolchain: Toolchain, source: str, architecture: str, options: Sequence[str],
    includes: Sequence[str], folder: Path,
) -> str:  # fmt: skip
    """Return the PTX that the same compilation goes through. Raises CandidateError as above."""
    ptx = _compiled("ptx", toolchain, source, architecture, options, includes, folder)
    return ptx.decode(errors="replace").rstrip("\0")


def _compiled(
    kind: Kind, toolchain: Toolchain, source: str, architecture: str, options: Sequence[str],
    includes: Sequence[str], folder: Path,
) -> bytes:  # fmt: skip
    (folder / SOURCE).write_text(source, encoding="utf-8")
    folders = [f"-I{each}" for each in (*includes, *toolchain.includes)]
    standard = [] if any("-std=" in each for each in options) else ["-std=c++17"]
    # Lines are what tools name a place by; the code is the same with and without them.
    arguments = [f"-arch={architecture}", "-lineinfo", *standard, *options, *folders]
    run = _with_nvrtc if toolchain.kind == "nvrtc" else _with_nvcc
    code, log = run(kind, toolchain, source, arguments, folder)
    log = _readable(log.replace("\0", ""), [str(folder), *includes, *toolchain.includes])
    (folder / LOG).write_text(log, encoding="utf-8")
    if code is None:
        raise _failure(toolchain, architecture, log)
    return code


def whole(cubin: bytes) -> bytes:
    """Return a cubin with its last byte, which cupy takes for the end of a text and drops.

    The table of segments is at the end; the last byte of its last row is part of a small number.
    Source: the ELF-64 object file format, version 1.5 (e_phoff, e_phentsize, e_phnum).
    """
    if len(cubin) < _ELF_HEADER_BYTES:
        return cubin
    start, (size, count) = unpack_from("<Q", cubin, 32)[0], unpack_from("<HH", cubin, 54)
    return cubin + b"\0" if len(cubin) == start + size * count - 1 else cubin


def _with_nvrtc(
    kind: Kind, toolchain: Toolchain, source: str, arguments: list[str], folder: Path
) -> tuple[bytes | None, str]:
    from cupy.cuda import nvrtc

    texts, names = (
        [each.encode() for each in part] for part in (STANDARD_HEADERS.values(), STANDARD_HEADERS)
    )
    # Without a cache of its own: what comes out of that has no log, so no figures.
    for more in (["--no-cache"], []):
        program: Any = nvrtc.createProgram(source, FILE, texts, names)
        try:
            nvrtc.compileProgram(program, (*arguments, *more, "--ptxas-options=-v"))
            made = nvrtc.getCUBIN(program) if kind == "cubin" else nvrtc.getPTX(program)
            return made, nvrtc.getProgramLog(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program) or str(error)
            if "no-cache" not in log:  # else it is of before that option, and has no cache
                break
        finally:
            nvrtc.destroyProgram(program)
    return None, log


def _with_nvcc(
    kind: Kind, toolchain: Toolchain, source: str, arguments: list[str], folder: Path
) -> tuple[bytes | None, str]:
    # Not on the command line: nvcc hands that to a shell, and these are a candidate's words.
    defined = [each[2:].partition("=") for each in arguments if each.startswith("-D")]
    lines = [f"#define {name} {value if equals else 1}\n" for name, equals, value in defined]
    (folder / KNOBS).write_text("".join(lines), encoding="utf-8")
    others = [each for each in arguments if not each.startswith("-D")]
    others += ["-include", KNOBS, "-Xptxas=-v", "-o", f"kernel.{kind}"]
    command = [toolchain.path, f"-{kind}", *others, SOURCE]
    # By its bare name, so that neither messages nor __FILE__ depend on where it is built.
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    made = (folder / f"kernel.{kind}").read_bytes() if done.returncode == 0 else None
    return made, done.stdout + done.stderr


def _readable(log: str, folders: Sequence[str]) -> str:
    """Return it without this machine's folders, lines as in kopt's own messages."""
    for each in sorted(folders, key=len, reverse=True):
        log = log.replace(f"{each}/", "")
    return re.sub(r"^([\w./+-]+)\((\d+)\): ", r"\1:\2: ", log, flags=re.M)


def warnings_of(log: str) -> str:
    """Return what the compiler said beside the resources."""
    lines = [line for line in log.splitlines() if not _NOISE.match(line)]
    text = "\n".join(lines).strip()
    return text if len(text) <= _MOST_LOG else f"{text[:_MOST_LOG]}\n[cut]"


def _failure(toolchain: Toolchain, architecture: str, log: str) -> CandidateError:
    if (found := _UNKNOWN_TARGET.search(log)) and "arch" in found[0]:
        return CandidateError(
            Status.UNSUPPORTED,
            f"{toolchain.detail} does not know {architecture}; name an older GPU with --target, "
            "or install a newer CUDA",
        )
    said = warnings_of(log) or f"{toolchain.detail} failed without a word"
    if shared := _TOO_MUCH_SHARED.search(log):
        said = (
            f"kernel {shared[1]} has {int(shared[2], 16)} bytes of static shared memory, and the "
            f"compiler takes at most {48 << 10}; declare it as extern __shared__ and give its size "
            "as `shared` in the launch plan"
        )
    elif missing := re.search(r'cannot open source file "([^"]+)"', said):
        said += (
            f"\nno folder has {missing[1]}: name its folder in the option `include` of backend.cuda"
            ", or, for CUDA's own headers, install kopt-cuda[cuda12] or [cuda13]"
        )
    return CandidateError(Status.COMPILE_ERROR, said)
