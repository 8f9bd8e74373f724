"""The kopt header of a reply: what it may say, and one for code that came without."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from kopt.errors import KernelFileError
from kopt.model.kernel_file import header_of, is_python, parse_kernel
from kopt_rewrite.replies.includes import reads_files
from kopt_rewrite.replies.languages import has_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.candidate import Candidate

_FLAG = re.compile(
    r"-O[0-3s]|-Ofast|-f(?:no-)?[a-z]+(?:-[a-z]+)*(?:=(?:\d{1,6}|[a-z]{1,12}))?|-m[a-z0-9.\-]+(?:=[a-z0-9\-]+)?|"
    r"-std=[a-z+0-9]+|--use_fast_math|-use_fast_math|--?maxrregcount=\d{1,3}|--extra-device-vectorization"
)
_READS_FILES = re.compile(
    r"-f(?:plugin|profile|auto-profile|dump|save|sanitize|module|pch|working)"
)
_MOST_KNOB_CHOICES = 64


def objection(candidate: Candidate) -> str:
    """Return what a reply's kernel file asks for and may not, or nothing.

    Compiler flags are for optimising alone: none that reads or writes files. Sources include
    headers by their names only, as far as their text can tell (``reads_files``).
    """
    flags = candidate.settings.get("flags", [])
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        return "flags has to be a list of strings"
    for flag in flags:
        if not _FLAG.fullmatch(flag) or _READS_FILES.match(flag):
            return (
                f"the flag {flag[:60]!r} is not allowed: only flags that choose optimisations are"
            )
    if said := reads_files(
        candidate.source, python=is_python(candidate.source, candidate.language)
    ):
        return said
    if any(len(knob.choices) > _MOST_KNOB_CHOICES for knob in candidate.knobs.values()):
        return f"a knob has more than {_MOST_KNOB_CHOICES} choices"
    return ""


def with_header(
    code: str, language: str, parent: Candidate | None, arguments: Sequence[str]
) -> str | None:
    """Return code with the header that it lacks; None where it has one, needs none, or none fits.

    :param arguments: the reference's parameters, by which a launcher in Python is told.
    """
    if has_header(code):
        return None
    if parent is not None and has_header(parent.source) and _fits_parent(code, parent):
        return f"{_header_text(parent.source)}\n{code.lstrip()}"
    if language in {"triton", "torch"}:
        return _python_header(code, arguments)
    return None


def _fits_parent(code: str, parent: Candidate) -> bool:
    """Whether the parent's header holds for code: all that it names is there."""
    names = [launch.get("kernel") for launch in parent.settings.get("launch", [])
             if isinstance(launch, dict)]  # fmt: skip
    wanted = [name for name in names if isinstance(name, str)] or [parent.entry]
    return all(re.search(rf"\b{re.escape(name)}\s*\(", code) for name in wanted) and all(
        re.search(rf"\b{re.escape(knob)}\b", code) for knob in parent.knobs
    )


def _header_text(source: str) -> str:
    lines = source.split("\n")
    start = next(i for i, line in enumerate(lines) if re.match(r"\s*(#|//)\s*///\s*kopt\s*$", line))
    ends = (i for i in range(start + 1, len(lines)) if re.match(r"\s*(#|//)\s*///\s*$", lines[i]))
    return "\n".join(lines[start : next(ends) + 1])


def _python_header(code: str, arguments: Sequence[str]) -> str | None:
    """Return a module with a header that names its only launcher; None where that is not plain."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    usual = {"ModelNew", "kernel_function", "custom_kernel"}
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    if names & usual:
        return None
    launchers = [
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
        and [a.arg for a in node.args.args][: len(arguments)] == list(arguments)
    ]  # fmt: skip
    if len(launchers) != 1:
        return None
    return f'# /// kopt\n# entry = "{launchers[0]}"\n# ///\n{code.lstrip()}'


def declared_language(code: str) -> str:
    """Return the language that a header names, or nothing. Raises KernelFileError."""
    return str(header_of(code).get("language", ""))


def read_kernel(code: str, language: str) -> Candidate:
    """Return the candidate that code is. Raises KernelFileError, whatever is wrong with it."""
    try:
        return parse_kernel(code, language)
    except KernelFileError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise KernelFileError(f"the kopt header cannot be read: {error}") from error
