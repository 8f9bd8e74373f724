"""Which language a piece of code is in, and whether it is all there."""

from __future__ import annotations

import ast
import re
import warnings

_PYTHON = re.compile(
    r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|@\w|async def )", re.M
)
_C = re.compile(
    r'^[ \t]*(?:#[ \t]*(?:include|define|pragma|ifdef|ifndef|if)\b|extern[ \t]+"C"|template[ \t]*<|'
    r"using [\w ]+[=;]|namespace \w|static (?:inline|void|float)|(?:void|float|double|int) \w+\()",
    re.M,
)
_CUDA = re.compile(r"\b__global__\b|<<<")
_OTHER = re.compile(
    r"^(?:fn \w+|pub fn|use std::|package \w+$|func \w+\(|function \w+\(|const \w+ = require|"
    r"public class |kernel void |module \w+)",
    re.M,
)
_HEADER = re.compile(r"^[ \t]*(#|//)[ \t]*///[ \t]*kopt[ \t]*$", re.M)
_LITERALS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/|/\*.*', re.DOTALL
)
_START = re.compile(
    r"^(?:[ \t]*(?:#|//)[ \t]*///[ \t]*kopt|#[ \t]*(?:include|define|pragma)\b|extern[ \t]+\"C\"|"
    r"import \w|from [\w.]+ import |@triton|template[ \t]*<)",
    re.M,
)
_ASSEMBLED = 2000


def has_header(code: str) -> bool:
    """Return whether code begins a kopt header somewhere."""
    return _HEADER.search(code) is not None


def looks_like(code: str) -> str:
    """Return ``triton``, ``torch``, ``cpp``, ``cuda``, ``other``, or nothing where it is no code."""
    header = _HEADER.search(code)
    python, c = len(_PYTHON.findall(code)), len(_C.findall(code))
    if _OTHER.search(code) and not c and not header and python < 2:
        return "other"
    if (header and header[1] == "#") or python > c:
        if re.search(r"^\s*(?:import|from)\s+cupy\b", code, re.M) and _CUDA.search(code):
            return "cuda"
        return "triton" if re.search(r"^\s*(?:import|from)\s+triton\b", code, re.M) else "torch"
    if header or c:
        return "cuda" if _CUDA.search(code) or "[[launch]]" in code else "cpp"
    return ""


def fits(code: str, language: str) -> bool:
    """Return whether code can be of a language at all."""
    found = looks_like(code)
    if found == language:
        return True
    # Triton behind another import, as ``import my_kernels``, is none; kernels are in the file.
    return found == "" and has_header(code)


def unfinished(code: str, language: str) -> str:
    """Return in what way code ends in the middle, or nothing where it does not."""
    if language in {"triton", "torch"} or looks_like(code) in {"triton", "torch"}:
        return _unfinished_python(code)
    plain = _LITERALS.sub("", code)
    missing = plain.count("{") - plain.count("}")
    if missing > 0:
        return f"{missing} of its braces are never closed"
    return ""


def _unfinished_python(code: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        said = str(error.msg)
        lines = code.count("\n") + 1
        late = (error.lineno or 0) >= lines - 2
        if "was never closed" in said or "unterminated" in said or "EOF" in said:
            return said if late or "triple" in said or "closed" in said else ""
        if late and "expected an indented block" in said:
            return said
    except (ValueError, RecursionError, MemoryError):
        return ""
    return ""


def bare_code(text: str) -> str:
    """Return the code of an answer without any fence: from its first line of code to its last.

    Lines of prose before and after are left out; nothing where there is no line of code.
    """
    start = _START.search(text)
    if start is None:
        return ""
    lines = text[start.start() :].split("\n")
    end = len(lines)
    while end and _prose(lines[end - 1]):
        end -= 1
    return "\n".join(lines[:end]) + "\n"


def _prose(line: str) -> bool:
    """Return whether a line is prose, or nothing, and no code."""
    stripped = line.strip()
    if not stripped:
        return True
    if line[:1] in " \t" or stripped[-1] in "{}();:,\\" or stripped.startswith(("#", "//", "@")):
        return False
    return re.match(r"[A-Z*\-][\w',*\-]* +[\w`'(*]", stripped) is not None
