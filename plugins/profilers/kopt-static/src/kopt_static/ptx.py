"""PTX: the instructions of each kernel, by kind, where there is no SASS to be had."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kopt_static.code import (
    ATOMIC,
    BARRIER,
    BRANCH,
    FP32,
    FP64,
    GENERIC,
    GPU_KINDS,
    INTEGER,
    LOAD,
    LOCAL,
    SHARED,
    SPECIAL,
    STORE,
    TENSOR,
    Code,
    Instruction,
    counted,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_BRACE = re.compile(r"[{}]")
_STATEMENT = re.compile(
    r"(?:[\s{}]|[\w$]+:(?!:)|\.loc\b[^\n]*)*(?:@!?%?\w+\s+)?([a-z][\w.:]*)(.*)", re.DOTALL
)
_TYPE = re.compile(r"[a-z]+(\d+)(?:x(\d))?")
_COPIED = re.compile(r",\s*(\d+)\s*(?:,|$)")
_FLOAT = {
    "abs", "add", "copysign", "div", "fma", "mad", "max", "min", "mul", "neg", "set", "setp", "sub",
}  # fmt: skip
_SPECIAL = {"cos", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"}
_INTEGER = {
    "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "brev", "clz", "div", "dp2a", "dp4a",
    "fns", "lop3", "mad", "madc", "max", "min", "mul", "mul24", "neg", "not", "or", "popc", "rem",
    "sad", "set", "setp", "shf", "shl", "shr", "sub", "subc", "xor",
}  # fmt: skip
_WHOLE = re.compile(r"[usb](8|16|32|64)(x\d)?")


def kernels(listing: str) -> dict[str, Code]:
    """Return the code of each kernel of a listing by its name.

    Local accesses are left out: the assembler removes some and adds those of its spills.
    """
    text = _COMMENT.sub("", listing)
    found = {}
    for match in _ENTRY.finditer(text):
        instructions = list(_instructions(_body(text, match.end())))
        found[match[1]] = counted(instructions, [kind for kind in GPU_KINDS if kind != LOCAL])
    return found


def _body(text: str, start: int) -> str:
    """Return what stands between the next brace and the one that closes it."""
    depth, first = 0, start
    for brace in _BRACE.finditer(text, start):
        if brace[0] == "{" and not depth:
            first = brace.end()
        depth += 1 if brace[0] == "{" else -1
        if depth <= 0:
            return text[first : brace.start()]
    return text[first:]


def _instructions(body: str) -> Iterator[Instruction]:
    for statement in body.split(";"):
        if match := _STATEMENT.match(statement):
            parts = match[1].split(".")
            yield Instruction(parts[0], *_kinds(parts, match[2]))


def _kinds(parts: list[str], operands: str) -> tuple[tuple[str, ...], int | None]:
    """Return what an instruction counts for, and the width of its global access."""
    name = parts[0]
    if name in {"ld", "ldu", "st"}:
        return _access(parts)
    if name == "cp":
        return _copy(parts, operands)
    if name in {"mma", "wmma", "wgmma", "tcgen05"}:
        return _matrix(parts), None
    return _plain(parts), None


def _space(parts: list[str]) -> str:
    """Return the address space that an instruction names, without what follows ``::``."""
    known = {"global", "shared", "local", "param", "const"}
    return next((at for part in parts if (at := part.partition("::")[0]) in known), "")


def _access(parts: list[str]) -> tuple[tuple[str, ...], int | None]:
    space = _space(parts)
    if space == "global":
        kind = STORE if parts[0] == "st" else LOAD
        return (kind,), _width(parts)
    return {"shared": (SHARED,), "local": (LOCAL,), "": (GENERIC,)}.get(space, ()), None


def _width(parts: list[str]) -> int | None:
    match = _TYPE.fullmatch(parts[-1])
    if match is None:
        return None
    vector = next((int(part[1:]) for part in parts if part in {"v2", "v4", "v8"}), 1)
    return int(match[1]) * int(match[2] or 1) * vector // 8


def _copy(parts: list[str], operands: str) -> tuple[tuple[str, ...], int | None]:
    """An asynchronous copy: its destination stands before its source."""
    spaces = [space for part in parts if (space := _space([part]))]
    if "prefetch" in parts or len(spaces) < 2:
        return (), None
    if parts[1] == "reduce":
        return (ATOMIC, SHARED), None
    if spaces == ["shared", "shared"]:
        return (SHARED,), None
    kind = STORE if spaces[0] == "global" else LOAD
    copied = None if "bulk" in parts else _COPIED.search(operands)
    return (kind, SHARED), int(copied[1]) if copied else None


def _matrix(parts: list[str]) -> tuple[str, ...]:
    if parts[0] == "mma" or parts[1].startswith("mma"):
        return (TENSOR,)
    if parts[0] == "wmma" and parts[1] in {"load", "store"}:
        kind = STORE if parts[1] == "store" else LOAD
        return {"global": (kind,), "shared": (SHARED,), "": (GENERIC,)}.get(_space(parts), ())
    return ()


def _plain(parts: list[str]) -> tuple[str, ...]:
    name = parts[0]
    if name in {"atom", "red"}:
        return (ATOMIC, SHARED) if _space(parts) == "shared" else (ATOMIC,)
    if name in {"ldmatrix", "stmatrix"}:
        return (SHARED,)
    if name in {"bar", "barrier"}:
        return () if {"warp", "cluster"} & set(parts) else (BARRIER,)
    if name in {"bra", "brx"}:
        return (BRANCH,)
    if name in _FLOAT | _SPECIAL and "f64" in parts:
        return (FP64,)
    if name in _SPECIAL:
        return (SPECIAL,)
    if name in _FLOAT and {"f32", "f32x2"} & set(parts):
        return (FP32,)
    if name in _INTEGER and any(_WHOLE.fullmatch(part) for part in parts):
        return (INTEGER,)
    return ()
