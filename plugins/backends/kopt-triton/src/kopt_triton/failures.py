"""Turn what Triton, PyTorch or the driver raise into a candidate's status, line and likely fix."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import InterpreterError, OutOfResources

from kopt.errors import CandidateError
from kopt.model.verification import Status

# What the message says -> what helps.
_COMPILE_FIXES = (
    (r"arange's range must be a power of 2|Shape element \d+ must be a power of 2",
     "extents in a kernel are powers of two: use triton.next_power_of_2(n) and a mask"),
    (r"arange's arguments must be of type tl.constexpr|Expected a constexpr|must be a? ?constexpr"
     r"|Shape element \d+ must have type",
     "declare the extent as a parameter `NAME: tl.constexpr`"),
    (r"numel \(\d+\) exceeds triton maximum", "use a smaller block and loop over the rest"),
    (r"[Cc]annot make_shape_compatible|[Ii]ncompatible dimensions|Cannot broadcast",
     "make the shapes agree with [:, None] or [None, :]"),
    (r"Input shapes should have|must be >= 16", "tl.dot needs extents of at least 16: pad the block"),
    (r"First input shape .* not equal|incompatible.*dot|same dtype|Both operands must be same",
     "cast both operands to one dtype with .to(...)"),
    (r"Loop-carried variable|[Mm]ismatched type|initial value for .* is of type",
     "give the variable its final type and shape before the loop or branch"),
    (r"is not defined", "define the name, or pass it as an argument; a global must be tl.constexpr"),
    (r"Cannot access global variable",
     "pass the global as a tl.constexpr argument, or define it as NAME = tl.constexpr(value)"),
    (r"unsupported AST node|is not supported|not implemented|UnsupportedLanguageConstruct",
     "Triton compiles a part of Python only: rewrite with tl operations and plain loops"),
    (r"triton\.language[\w.]*' has no attribute",
     "check the name against the installed triton's triton.language"),
    (r"_semantic|_builder", "call tl functions inside @triton.jit functions only"),
)  # fmt: skip
_RUN_STATUS = (
    (r"an illegal memory access", Status.ILLEGAL_ACCESS, "check the masks of loads and stores"),
    (r"misaligned address", Status.ILLEGAL_ACCESS,
     "an address is not a multiple of its access's size; check hints like tl.multiple_of"),
    (r"out of memory|DefaultCPUAllocator", Status.OOM, "allocate less in the launcher"),
    (r"device-side assert", Status.LAUNCH_FAILED, "an assertion in the kernel failed"),
    (r"invalid (configuration )?argument", Status.LAUNCH_FAILED,
     "a grid has 1 to 2^31-1, 65535, 65535 blocks and none may be 0"),
    (r"cannot be accessed from Triton", Status.LAUNCH_FAILED,
     "a CPU tensor went to the kernel: allocate with device=x.device"),
    (r"was specified but unrecognised", Status.COMPILE_ERROR,
     "the kernel has no such parameter: rename or drop the keyword"),
    (r"num_warps must be a power of 2", Status.COMPILE_ERROR, "use 1, 2, 4, 8, 16 or 32 warps"),
    (r"num_ctas > 1 requires", Status.COMPILE_ERROR, "set num_ctas=1 on this architecture"),
    (r"is not defined for option 'gpu-name'", Status.UNSUPPORTED,
     "this version of Triton does not know the architecture: pip install --upgrade triton"),
    (r"module 'triton\.language[\w.]*' has no attribute", Status.COMPILE_ERROR,
     "check the name against the installed triton's triton.language"),
    (r"PassManager::run failed|PTXAS error|ptxas", Status.COMPILE_ERROR,
     "the compiler itself failed: try other block sizes, num_warps or num_stages"),
    (r"no valid triton config|No valid autotuner config", Status.COMPILE_ERROR,
     "no configuration is left: add one that fits"),
    (r"[Mm]eta tensor|'Meta' backend|tensors? on meta", Status.UNSUPPORTED,
     "the launcher reads values on the host: derive sizes from shapes to compile ahead of time"),
)  # fmt: skip


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, outermost first."""
    found = [error]
    while (cause := found[-1].__cause__) is not None and len(found) < 50:
        found.append(cause)
    return found


def _line_of(error: CompilationError, source: str) -> int | None:
    """Return the line in the candidate's file, from the line in the kernel's own text."""
    inside = getattr(error.node, "lineno", None)
    if inside is None or not error.src:
        return None
    lines = [line.strip() for line in source.splitlines()]
    wanted = [line.strip() for line in textwrap.dedent(error.src).rstrip().splitlines()]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start : start + len(wanted)] == wanted:
            return int(start + inside)
    return None


def _shown(line: int | None, source: str) -> str:
    lines = source.splitlines()
    if line is None or not 0 < line <= len(lines):
        return ""
    return f"line {line}: `{lines[line - 1].strip()}`: "


def _fix(text: str) -> str:
    for pattern, fix in _COMPILE_FIXES:
        if re.search(pattern, text):
            return f"; {fix}"
    return ""


def _reason(error: BaseException) -> str:
    if isinstance(error, CompilationError):
        return str(error.error_message or type(error).__name__)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _compile_failure(chain: list[BaseException], source: str) -> CandidateError:
    errors = [item for item in chain if isinstance(item, CompilationError)]
    # The innermost place in the candidate's file: a call into the library fails at the call.
    lines = [line for item in errors if (line := _line_of(item, source)) is not None]
    reason = next(
        (str(item.error_message) for item in reversed(errors) if item.error_message),
        _reason(chain[-1]),
    )
    where = _shown(lines[-1] if lines else None, source)
    return CandidateError(Status.COMPILE_ERROR, f"{where}{reason.strip()}{_fix(reason)}")


def _resource_failure(error: OutOfResources) -> CandidateError:
    unit = " bytes" if "memory" in error.name else ""
    return CandidateError(
        Status.COMPILE_ERROR,
        f"a kernel needs {error.required}{unit} of {error.name}, the GPU gives a block "
        f"{error.limit}; use smaller blocks, fewer num_stages or fewer num_warps",
    )


def _traceback_line(error: BaseException, folder: Path) -> int | None:
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).is_relative_to(folder):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def candidate_error(error: BaseException, source: str, folder: Path) -> CandidateError:
    """Return what an exception says about the candidate.

    :param source: the candidate's text, for its lines.
    :param folder: where the candidate's module lies, to find its frames in the traceback.
    """
    chain = _chain(error)
    if any(isinstance(item, CompilationError) for item in chain):
        return _compile_failure(chain, source)
    for item in chain:
        if isinstance(item, OutOfResources):
            return _resource_failure(item)
    if isinstance(error, CandidateError):
        cause = error.__cause__
        if cause is None or type(cause).__name__ not in error.detail:
            return error
        # kopt_torch wrapped it as it came: say it again with its line.
        chain = chain[1:]
        error = cause
    lines = [line for item in chain if (line := _traceback_line(item, folder)) is not None]
    where = _shown(lines[-1] if lines else None, source)
    inner = [item for item in chain if not isinstance(item, InterpreterError)] or chain
    reason = where + _reason(inner[-1])
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return CandidateError(Status.OOM, f"{reason}; allocate less in the launcher")
    for pattern, status, fix in _RUN_STATUS:
        if re.search(pattern, reason):
            return CandidateError(status, f"{reason}; {fix}")
    return CandidateError(Status.LAUNCH_FAILED, f"{reason}{_fix(reason)}")
