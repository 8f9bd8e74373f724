"""Turn what Triton, PyTorch or the driver raise into a candidate's status, line and likely fix."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import InterpreterError, OutOfResources

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_torch.tracebacks import causes, line_below
from kopt_triton.launch_sites import kernels
from kopt_triton.likely_fixes import fix_of, status_of
from kopt_triton.names import SourceTree, called


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


def _with_fix(text: str, fix: str) -> str:
    return f"{text.strip()}; {fix}" if fix else text.strip()


def _reason(error: BaseException) -> str:
    if isinstance(error, CompilationError):
        return str(error.error_message or type(error).__name__)
    said = _short(str(error)).removeprefix("dynamic_func() ")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _short(text: str) -> str:
    """Return a message without addresses, and of ptxas's pages each complaint once."""
    if "`ptxas` stderr" in text:
        found = re.findall(r"^ptxas .*?(?:error|fatal)\s*: (.*)$", text, re.M)
        return "ptxas: " + "; ".join(dict.fromkeys(found)) if found else text
    return re.sub(r" at 0x[0-9a-f]+>", ">", text)


def _compile_failure(chain: list[BaseException], source: str) -> CandidateError:
    errors = [item for item in chain if isinstance(item, CompilationError)]
    # The innermost place in the candidate's file: a call into the library fails at the call.
    lines = [line for item in errors if (line := _line_of(item, source)) is not None]
    reason = next(
        (_short(str(item.error_message)) for item in reversed(errors) if item.error_message),
        _reason(chain[-1]),
    )
    where = _shown(lines[-1] if lines else None, source)
    return CandidateError(Status.COMPILE_ERROR, where + _with_fix(reason, fix_of(reason)))


def _resource_failure(error: OutOfResources, where: str) -> CandidateError:
    units = {"shared memory": " bytes of", "tensor memory": " columns of"}
    unit = units.get(error.name, "")
    fix = "fewer num_warps" if error.name == "threads" else "smaller blocks or fewer num_stages"
    return CandidateError(
        Status.COMPILE_ERROR,
        f"{where}a kernel needs {error.required}{unit} {error.name}, the GPU gives a block "
        f"{error.limit}; use {fix}",
    )


def _innermost(chain: list[BaseException], folder: Path) -> int | None:
    """Return the line in the candidate's file that is nearest to the failure."""
    lines = [line for item in chain if (line := line_below(item, folder)) is not None]
    return lines[-1] if lines else None


def candidate_error(error: BaseException, source: str, folder: Path) -> CandidateError:
    """Return what an exception says about the candidate.

    :param source: the candidate's text, for its lines.
    :param folder: where the candidate's module lies, to find its frames in the traceback.
    """
    chain = causes(error)
    if any(isinstance(item, CompilationError) for item in chain):
        return _compile_failure(chain, source)
    for item in chain:
        if isinstance(item, OutOfResources):
            return _resource_failure(item, _shown(_innermost(chain, folder), source))
    if isinstance(error, CandidateError):
        cause = error.__cause__
        if cause is None or type(cause).__name__ not in error.detail:
            return error
        # kopt_torch wrapped it as it came: say it again with its line.
        chain = chain[1:]
        error = cause
    where = _shown(_innermost(chain, folder), source)
    inner = [item for item in chain if not isinstance(item, InterpreterError)] or chain
    reason = _reason(inner[-1])
    if len(inner) < len(chain) and _needs_a_gpu(reason, where):
        return CandidateError(
            Status.UNSUPPORTED,
            f"{where}{reason}; Triton's interpreter has tl operations only: verify it on a GPU",
        )
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return CandidateError(Status.OOM, f"{where}{reason}; allocate less in the launcher")
    if foreign := _foreign_call(reason, source):
        where = _shown(foreign, source)
    status, fix = status_of(reason) or (Status.LAUNCH_FAILED, fix_of(reason))
    return CandidateError(status, where + _with_fix(reason, fix))


def _needs_a_gpu(reason: str, where: str) -> bool:
    """Whether the interpreter lacks what a GPU has: inline assembly, and much of ``tl.extra``."""
    return "interpreter mode" in reason or ("_semantic" in reason and "tl.extra." in where)


def _foreign_call(reason: str, source: str) -> int | None:
    """Return the line of the kernel that calls what Triton says it cannot: it names no line."""
    named = re.search(
        r"Unsupported function referenced: <[a-z -]*?(?:function|method) (\w+)", reason
    )
    if named is None:
        return None
    for kernel in kernels(SourceTree(source)).values():
        for node in ast.walk(kernel.node):
            if isinstance(node, ast.Call) and called(node) == named[1]:
                return node.lineno
    return None
