"""Reading what the address, undefined-behaviour and thread sanitizers wrote."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kopt.model.sanitizer import SanitizerFinding

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 8
_MOST_TEXT = 300
_LINE = re.compile(r"\bkernel\.cpp:(\d+)")
_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (.*)")
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d+)", re.MULTILINE)
_REGION = re.compile(
    r"(?:is )?located (\d+) bytes (to the right of|to the left of|after|before|inside of) "
    r"(\d+)-byte region"
)
_ALLOCATED = re.compile(r"allocated by thread.*", re.DOTALL)
_ALLOCATION = re.compile(r"\bmain\.cpp:(\d+)")
_VARIABLE = re.compile(r"'(\w+)' \(line \d+\) <== (.*)")
_UNDEFINED = re.compile(r"^(\S+?):(\d+):\d+: runtime error: (.*)$", re.MULTILINE)
_THREAD = re.compile(r"WARNING: ThreadSanitizer: (.+?) \(pid=\d+\)(.*?)^={18}", re.DOTALL | re.M)
_RACING = re.compile(
    r"^  ((?:Previous )?(?:atomic )?(?:read|write) of size \d+)[^\n]*\n((?:    [^\n]*\n)+)",
    re.MULTILINE | re.IGNORECASE,
)
_UNDEFINED_KINDS = (
    ("shift exponent", "shift-exponent"),
    ("left shift of", "shift-base"),
    ("signed integer overflow", "signed-integer-overflow"),
    ("negation of", "signed-integer-overflow"),
    ("division of", "signed-integer-overflow"),
    ("division by zero", "integer-divide-by-zero"),
    ("misaligned address", "alignment"),
    ("insufficient space", "object-size"),
    ("null pointer passed as argument", "nonnull-attribute"),
    ("offset to null pointer", "pointer-overflow"),
    ("null pointer", "null"),
    ("out of bounds", "bounds"),
    ("pointer index expression", "pointer-overflow"),
    ("variable length array bound", "vla-bound"),
    ("without returning a value", "return"),
    ("unreachable program point", "unreachable"),
    ("not a valid value for type 'bool'", "bool"),
    ("not a valid value for type", "enum"),
)
"""What UBSan's messages contain, and the name of the check in the compiler's options."""


def findings(tool: str, log: str, tensors: Mapping[int, str]) -> tuple[SanitizerFinding, ...]:
    """Return what a tool's log reports, each place once.

    :param tensors: the tensor that each line of the calling program allocates.
    """
    if tool == "address":
        found = _address(log, tensors)
    elif tool == "undefined":
        found = _undefined(log)
    else:
        found = _thread(log)
    unique = {(each.kind, each.line): each for each in reversed(found)}
    return tuple(reversed(unique.values()))[:_MOST]


def _finding(tool: str, kind: str, line: int | None, message: str) -> SanitizerFinding:
    return SanitizerFinding(tool=tool, kind=kind, line=line, message=message[:_MOST_TEXT])


def _line_in(text: str) -> int | None:
    found = _LINE.search(text)
    return int(found[1]) if found else None


def _address(log: str, tensors: Mapping[int, str]) -> list[SanitizerFinding]:
    report = _ADDRESS.search(log)
    if not report:
        return []
    kind = re.search(r"SEGV|double-free|\b[a-z]+(?:-[a-z]+)+|BUS|FPE|ILL", report[1])
    access = _ACCESS.search(log)
    said = [f"{access[1].lower()} of {access[2]} bytes" if access else report[1]]
    if variable := _VARIABLE.search(log):
        said.append(f"variable {variable[1]}")
    elif region := _REGION.search(log):
        side = {"to the right of": "after", "to the left of": "before", "inside of": "inside"}
        said.append(
            f"{region[1]} bytes {side.get(region[2], region[2])} "
            f"{_owner(log, tensors)} of {region[3]} bytes"
        )
    name = kind[0] if kind else "other"
    return [_finding("address", name, _line_in(log), ", ".join(said))]


def _owner(log: str, tensors: Mapping[int, str]) -> str:
    """Return whose memory it is: the call's, or what the kernel allocated."""
    stack = _ALLOCATED.search(log)
    if not stack:
        return "a region"
    first = re.split(r"\n\s*\n", stack[0])[0]
    allocation = _ALLOCATION.search(first)
    if _LINE.search(first) is None and allocation and int(allocation[1]) in tensors:
        return f"the tensor {tensors[int(allocation[1])]}"
    line = _line_in(first)
    return f"what line {line} allocated," if line else "a region"


def _undefined(log: str) -> list[SanitizerFinding]:
    found = []
    for report in _UNDEFINED.finditer(log):
        path, number, message = report.groups()
        kind = next((kind for text, kind in _UNDEFINED_KINDS if text in message), "other")
        own = path.split("/")[-1] == "kernel.cpp"
        stack = log[report.end() :].split("runtime error:")[0]
        line = int(number) if own else _line_in(stack)
        found.append(_finding("undefined", kind, line, message))
    return found


def _thread(log: str) -> list[SanitizerFinding]:
    found = []
    for report in _THREAD.finditer(log):
        accesses = []
        for access in _RACING.finditer(report[2]):
            line = _line_in(access[2])
            where = f" in line {line}" if line else ""
            accesses.append(f"{access[1].lower()}{where}")
        message = ", ".join(accesses) or report[1]
        found.append(_finding("thread", report[1], _line_in(report[2]), message))
    return found
