"""The parameters of the kernels in a source, read from their declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda.plan import FILE

SCALARS = {
    "bool": "?", "char": "b", "signed char": "b", "unsigned char": "B", "short": "h",
    "unsigned short": "H", "int": "i", "unsigned int": "I", "long": "q", "unsigned long": "Q",
    "long long": "q", "unsigned long long": "Q", "float": "f", "double": "d",
}  # fmt: skip
"""C types that are passed by value, with their struct formats (64-bit ``long``, as on Linux)."""
_ALIASES = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "int32_t": "int", "uint32_t": "unsigned int",
    "int64_t": "long long", "uint64_t": "unsigned long long", "size_t": "unsigned long",
    "ptrdiff_t": "long", "intptr_t": "long", "uintptr_t": "unsigned long", "uint": "unsigned int",
    "uchar": "unsigned char", "ushort": "unsigned short", "half": "__half",
    "nv_bfloat16": "__nv_bfloat16", "half2": "__half2", "nv_bfloat162": "__nv_bfloat162",
}  # fmt: skip
_ANY = frozenset(
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    ]
)
_BITS8, _BITS16 = frozenset({"int8", "uint8", "bool"}), frozenset({"int16"})
_POINTED = {
    "void": _ANY, "bool": frozenset({"bool"}), "char": _BITS8, "signed char": _BITS8,
    "unsigned char": _BITS8, "short": _BITS16,
    "unsigned short": _BITS16 | {"float16", "bfloat16"}, "int": frozenset({"int32"}),
    "unsigned int": frozenset({"int32"}), "long": frozenset({"int64"}),
    "unsigned long": frozenset({"int64"}), "long long": frozenset({"int64"}),
    "unsigned long long": frozenset({"int64"}), "float": frozenset({"float32"}),
    "double": frozenset({"float64"}), "__half": frozenset({"float16"}),
    "__half2": frozenset({"float16"}), "__nv_bfloat16": frozenset({"bfloat16"}),
    "__nv_bfloat162": frozenset({"bfloat16"}),
}  # fmt: skip
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long|u?longlong|float|double)([1-4])")
_VECTOR_BYTES = {"char": 1, "short": 2, "int": 4, "long": 8, "longlong": 8, "float": 4, "double": 8}
_KNOWN = (
    "bool, char, short, int, long, long long (and unsigned), int8_t to uint64_t, size_t, float, "
    "double by value; pointers to these, to __half, __nv_bfloat16, void, float4 and the like"
)
_KERNEL = re.compile(
    r"__global__\b(?P<before>[^;{}]*?)\b(?P<name>[A-Za-z_]\w*)\s*\((?P<inside>[^;{}]*)\)\s*\{"
)
_EXTERN_BLOCK = re.compile(r'extern\s+"C"\s*\{')


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    type: str
    """As written, without qualifiers."""
    name: str
    scalar: str | None
    """The struct format of a value; None: a pointer."""
    dtypes: frozenset[str] = frozenset()
    """Of the tensors that a pointer may point to."""
    alignment: int = 1
    """Bytes that a pointer's address has to be a multiple of."""


@dataclass(frozen=True)
class Kernel:
    """One ``extern "C" __global__`` function."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]


def kernels_of(source: str, definitions: dict[str, str] | None = None) -> dict[str, Kernel]:
    """Return the kernels with C linkage that a source defines, by name.

    ``definitions``: what the preprocessor is told besides, as a knob that names a type.

    Raises CandidateError (PARSE_ERROR) for a parameter whose type cannot be passed.
    """
    code = _without_comments(source)
    aliases = {**_ALIASES, **_declared(code), **(definitions or {})}
    found = {}
    for match in _KERNEL.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        name, inside = _split(match)
        if not _has_c_linkage(code, match.start()):
            continue
        parameters = tuple(
            _parameter(text, aliases, f"{FILE}:{line}: kernel {name}") for text in _listed(inside)
        )
        found[name] = Kernel(name, line, parameters)
    return found


def _split(match: re.Match[str]) -> tuple[str, str]:
    """Return name and parameter list; ``__launch_bounds__(...)`` may have matched as the name."""
    text = f"{match['name']}({match['inside']})"
    text = re.sub(
        r"(__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__)\s*"
        r"\(([^()]|\([^()]*\))*\)", "", text,
    )  # fmt: skip
    named = re.search(r"([A-Za-z_]\w*)\s*\((.*)\)\s*$", text, re.S)
    return (named[1], named[2]) if named else (match["name"], match["inside"])


def _has_c_linkage(code: str, start: int) -> bool:
    statement = re.split(r"[;}]", code[:start])[-1]
    if re.search(r'extern\s+"C"', statement):
        return True
    for block in _EXTERN_BLOCK.finditer(code, 0, start):
        inside = code[block.end() : start]
        if inside.count("{") >= inside.count("}"):
            return True
    return False


def _without_comments(source: str) -> str:
    """Blank comments out; lines stay where they are."""
    return re.sub(
        r"//[^\n]*|/\*.*?\*/",
        lambda match: re.sub(r"[^\n]", " ", match[0]), source, flags=re.S,
    )  # fmt: skip


def _declared(code: str) -> dict[str, str]:
    """Return what ``using A = B;``, ``typedef B A;`` and ``#define A B`` say about types."""
    found = {}
    for match in re.finditer(r"\busing\s+(\w+)\s*=\s*([\w ]+);", code):
        found[match[1]] = match[2]
    for match in re.finditer(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", code):
        found[match[2]] = match[1]
    for match in re.finditer(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w ]*)$", code, re.M
    ):
        found[match[1]] = match[2]
    return found


def _listed(inside: str) -> list[str]:
    parts = [part.strip() for part in inside.split(",")]
    return [] if parts in ([""], ["void"]) else parts


def _parameter(text: str, aliases: dict[str, str], where: str) -> Parameter:
    plain = re.sub(
        r"\b(const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct)\b"
        r"|\b(std|cuda)::(?=\w)", " ", text,
    )  # fmt: skip
    plain = re.sub(r"\[\s*\]", "*", plain) if "[" in plain else plain
    stars = plain.count("*")
    words = plain.replace("*", " ").split()
    nameless = len(words) == 1 or " ".join(words) in SCALARS
    name = "" if nameless else words.pop()
    type_ = _resolved(" ".join(words), aliases)
    if stars == 0 and type_ in SCALARS:
        return Parameter(type_, name, SCALARS[type_])
    if stars == 1 and (match := _VECTOR.fullmatch(type_)):
        count = int(match[2])
        size = _VECTOR_BYTES[match[1].removeprefix("u")]
        # Integer vectors and float4 are how 128 bits of anything are loaded at once.
        known = {"float2": _POINTED["float"], "double2": _POINTED["double"]}.get(type_, _ANY)
        return Parameter(type_, name, None, known, size if count == 3 else size * count)
    if stars == 1 and type_ in _POINTED:
        alignment = 4 if type_ in {"__half2", "__nv_bfloat162"} else 1
        return Parameter(type_, name, None, _POINTED[type_], alignment)
    raise CandidateError(
        Status.PARSE_ERROR,
        f"{where}: parameter {' '.join(text.split())!r} is of a type that kopt cannot pass; use "
        f"one of {_KNOWN}",
    )


def _resolved(type_: str, aliases: dict[str, str]) -> str:
    for _ in range(8):
        if type_ not in aliases:
            break
        type_ = " ".join(word for word in aliases[type_].split() if word != "const")
    words = type_.split()
    if "unsigned" in words or "signed" in words:
        sign = "unsigned" if "unsigned" in words else "signed"
        rest = " ".join(word for word in words if word not in {"unsigned", "signed", "int"})
        if sign == "unsigned":
            return f"unsigned {rest or 'int'}"
        return "signed char" if rest == "char" else rest or "int"
    if len(words) > 1 and words[-1] == "int":
        return " ".join(words[:-1])
    return type_
