"""Assembly of a C++ kernel for the CPU: vector and scalar arithmetic of each function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kopt_static.code import (
    BRANCH,
    CPU_KINDS,
    SCALAR_FLOAT,
    VECTOR,
    VECTOR_BITS,
    Code,
    Instruction,
    counted,
)

_TYPED = re.compile(r"\s*\.type\s+([^\s,]+),\s*[@%]function")
_LABEL = re.compile(r"([A-Za-z_$][\w.$@]*):")
_LINE = re.compile(r"\s+(?:(?:lock|rep\w*|notrack)\s+)?([a-z][\w.]*)\b[ \t]*([^#\n]*)")
_X86 = re.compile(r"\b[er](?:ax|bp|sp|ip|di|si)\b|\b[xyz]mm\d")
_ARM64 = re.compile(r"\b(?:[wx](?:[12]?\d|30|zr)|v\d+\.\d+[bhsd])\b")

_X86_BITS = {"x": 128, "y": 256, "z": 512}
_X86_REGISTER = re.compile(r"\b([xyz])mm\d")
_X86_FLOAT = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|min|max|fn?m(?:add|sub)(?:132|213|231)|fm(?:addsub|subadd)\d{3}"
    r"|addsub|hadd|hsub|dp|dpbf16|rcp(?:14|28)?|rsqrt(?:14|28)?|round|rndscale|scalef|getexp"
    r"|reduce|range|cmp\w*?)([ps])[sdh]"
)
_X86_INTEGER = re.compile(
    r"v?p(?:add|sub|mul|madd|min|max|avg|abs|sad|sll|srl|sra|dpbusd|dpwssd)\w*"
)
_X86_BRANCH = re.compile(r"j[a-z]+|loop\w*")

_ARM_VECTOR = re.compile(r"\bv\d+\.(\d+)([bhsd])\b")
_ARM_BITS = {"b": 8, "h": 16, "s": 32, "d": 64}
_ARM_WHOLE = re.compile(r"\bq\d")
_ARM_SCALABLE = re.compile(r"\bz\d+\.[bhsd]\b")
_ARM_SCALAR = re.compile(r"[hsd]\d")
_ARM_FLOAT = re.compile(
    r"f(?:n?m(?:add|sub|ul)|n?m(?:ad|sb)|n?ml[as]|add|sub|div|sqrt|min|max|minnm|maxnm|abs|neg|"
    r"cmp\w*|abd|addp|rint\w|recp[es]|rsqrt[es]|cm[a-z]{2})"
)
_ARM_INTEGER = re.compile(
    r"(?:add|sub|mul|ml[as]|[su](?:min|max|abd|mull2?|mlal2?|addl?v?)|abs|neg)"
)
_ARM_BRANCH = re.compile(r"b(?:\.?[a-z]{2})?|br|t?cbn?z|tbn?z|retaa")

_Reader = Callable[[str, str], tuple[tuple[str, ...], int]]


def functions(listing: str) -> dict[str, Code]:
    """Return the code of each function of a listing by its symbol; empty for an unknown machine.

    x86-64 in either syntax, and arm64. What the compiler took out of a function (the body of a
    parallel loop, an unlikely part, a copy for some constant) has the function's symbol before a
    point, and counts for it. Scalable vectors (SVE) have no width in the code: then none is given.
    """
    read = _reader(listing)
    if read is None:
        return {}
    found: dict[str, list[Instruction]] = {}
    bits: dict[str, list[int]] = {}
    for name, opcode, operands in _lines(listing):
        kinds, width = read(opcode, operands)
        found.setdefault(name, []).append(Instruction(opcode.partition(".")[0], kinds))
        bits.setdefault(name, []).append(width)
    return {name: _code(each, bits[name]) for name, each in found.items()}


def _code(instructions: list[Instruction], bits: list[int]) -> Code:
    code = counted(instructions, CPU_KINDS)
    if min(bits) >= 0:
        code.metrics[VECTOR_BITS] = max(bits)
    return code


def _reader(listing: str) -> _Reader | None:
    if _X86.search(listing):
        return _x86
    return _arm64 if _ARM64.search(listing) else None


def _lines(listing: str) -> Iterator[tuple[str, str, str]]:
    """Yield function, opcode and operands of each instruction."""
    typed = set(_TYPED.findall(listing))
    current = None
    for line in listing.splitlines():
        if match := _LABEL.match(line):
            if match[1] in typed or not (typed or match[1].startswith(("L", "l"))):
                current = match[1].partition(".")[0]
        elif current is not None and (match := _LINE.match(line)):
            yield current, match[1], match[2]


def _x86(opcode: str, operands: str) -> tuple[tuple[str, ...], int]:
    """Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2."""
    width = max((_X86_BITS[each] for each in _X86_REGISTER.findall(operands)), default=0)
    if _X86_BRANCH.fullmatch(opcode):
        return (BRANCH,), width
    if not width:
        return (), 0
    if match := _X86_FLOAT.fullmatch(opcode):
        return ((VECTOR if match[1] == "p" else SCALAR_FLOAT),), width
    return ((VECTOR,) if _X86_INTEGER.fullmatch(opcode) else ()), width


def _arm64(opcode: str, operands: str) -> tuple[tuple[str, ...], int]:
    """Source: Arm Architecture Reference Manual for A-profile. Width -1: scalable."""
    arithmetic = _ARM_FLOAT.fullmatch(opcode) or _ARM_INTEGER.fullmatch(opcode)
    if _ARM_SCALABLE.search(operands):
        return ((VECTOR,) if arithmetic else ()), -1
    lanes = _ARM_VECTOR.findall(operands)
    width = max((int(count) * _ARM_BITS[each] for count, each in lanes), default=0)
    if _ARM_WHOLE.search(operands):
        width = 128
    if _ARM_BRANCH.fullmatch(opcode):
        return (BRANCH,), width
    if width:
        return ((VECTOR,) if arithmetic else ()), width
    scalar = _ARM_FLOAT.fullmatch(opcode) and _ARM_SCALAR.match(operands)
    return ((SCALAR_FLOAT,) if scalar else ()), width
