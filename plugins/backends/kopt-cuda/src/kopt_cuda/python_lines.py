"""Failures of the Python form: the compiler's words with lines of the user's file, and a status."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_torch.executable import as_candidate_error
from kopt_torch.tracebacks import causes, line_below

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "kernel.py"
"""What messages call the candidate's source."""
_SAID = re.compile(r"^(?P<file>[^\s():]+)(\((?P<a>\d+)\)|:(?P<b>\d+)): (?=\w+( error| #|:))", re.M)
_STANDARD = re.compile(
    r"^\s*#\s*include\s*<(c?(?:std(?:int|def)|limits|float|math)(?:\.h)?)>", re.M
)
_IN_CUPY = "cupy has no standard headers: include CUDA's own, as <cuda/std/cstdint>"
_NOISE = re.compile(r"\d+ \w* ?errors? detected|Compilation terminated")
_NO_SUCH_KERNEL = "named symbol not found"


def file_line(source: str, code: str, line: int) -> int | None:
    """Return where a line of a CUDA string stands in the file; None where that cannot be told.

    The string may have been changed on its way from the literal to the compiler, as by
    ``replace``: then the line's text has to be in one string literal of the file, once.
    """
    texts = code.splitlines()
    if not 0 < line <= len(texts) or not (text := texts[line - 1].strip()):
        return None
    lines, literals = source.splitlines(), list(_literals(source))
    for literal in literals:
        guess = literal.lineno + line - 1
        if literal.value == code and guess <= len(lines) and text in lines[guess - 1]:
            return guess
    inside = {number for each in literals for number in _span(each) if text in lines[number - 1]}
    whole = {number for number in inside if lines[number - 1].strip() == text}
    found = whole or inside
    return found.pop() if len(found) == 1 else None


def _literals(source: str) -> Iterator[ast.Constant]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def _span(literal: ast.Constant) -> range:
    return range(literal.lineno, (literal.end_lineno or literal.lineno) + 1)


def in_file(log: str, code: str, source: str, names: tuple[str, ...]) -> str:
    """Return a compiler's log with the lines of the user's file.

    :param names: what the log calls the CUDA string, with or without folders.
    """

    def named(match: re.Match[str]) -> str:
        if match["file"] not in names:
            return f"{Path(match['file']).name}:{match['a'] or match['b']}: "
        line = int(match["a"] or match["b"])
        place = file_line(source, code, line)
        if place is None:
            return f"{FILE}, line {line} of the CUDA source: "
        return f"{FILE}:{place}: "

    log = _SAID.sub(named, log.replace("\0", ""))
    kept = [line for line in log.splitlines() if not _NOISE.match(line)]
    return "\n".join(kept).strip()


def missing_headers(code: str, source: str) -> str:
    """Return warnings of standard headers, which kopt's compiler has here and cupy's has not."""
    said = []
    for match in _STANDARD.finditer(code):
        line = code.count("\n", 0, match.start(1)) + 1
        place = file_line(source, code, line)
        said.append(f"{FILE}{f':{place}' if place else ''}: warning: <{match[1]}>: {_IN_CUPY}\n")
    return "".join(said)


def candidate_error(error: BaseException, source: str, folder: Path) -> CandidateError:
    """Return what an exception says about the candidate.

    :param folder: where the candidate's module lies, to find its frames in the traceback.
    """
    for each in causes(error):
        if type(each).__name__ == "CompileException" and hasattr(each, "get_message"):
            return _compile_failure(each, source)
    cause = error
    if isinstance(error, CandidateError):
        inner = error.__cause__
        if inner is None or type(inner).__name__ not in error.detail:
            return error
        cause = inner  # kopt_torch wrapped it as it came: say it again with its line
    made = _classified(cause)
    detail, status = made.detail, made.status
    if _NO_SUCH_KERNEL in detail:
        status = Status.COMPILE_ERROR
        detail += '; the CUDA source has no extern "C" kernel of the name that get_function got'
    line = line_below(cause, folder)
    return CandidateError(status, f"{FILE}:{line}: {detail}" if line else detail)


def _compile_failure(error: object, source: str) -> CandidateError:
    code, name = str(getattr(error, "source", "")), str(getattr(error, "name", ""))
    said = in_file(str(error), code, source, (name, Path(name).name or "default_program"))
    said = said.replace(f"{Path(name).parent}/", "") if "/" in name else said
    if re.search("(cannot|could not) open source file", said):
        said += f"\n{_IN_CUPY}; for a header of your own, add its folder as -I to `options`"
    options = " ".join(map(str, getattr(error, "options", ()) or ()))
    return CandidateError(
        Status.COMPILE_ERROR,
        (said or f"{FILE}: the compiler failed without a word; its options were {options}")[:6000],
    )


def _classified(error: BaseException) -> CandidateError:
    """Return the error with the status that kopt-torch gives it."""
    try:
        with as_candidate_error():
            raise error
    except CandidateError as made:
        return made
