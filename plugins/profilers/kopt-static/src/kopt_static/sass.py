"""SASS, as nvdisasm or cuobjdump prints it: the instructions of each kernel, by kind."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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

_SECTION = re.compile(r"\s*\.section\s+\"?\.text\.([^,\s\"]+)")
_FUNCTION = re.compile(r"\s*Function : (\S+)")
_ENTRY = re.compile(r"\s*\.other\s+\S+,\s*@\"[^\"]*\bSTO_CUDA_ENTRY\b")
_BARRIERS = re.compile(r"\bSHF_BARRIERS=(\d+)")
_LABEL = re.compile(r"\s*([\w.$]+):\s*$")
_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@!?U?P[T\d]+\s+)?"
    r"([A-Z][A-Z0-9_]*)((?:\.\w+)*)\s*([^;]*);"
)
_KINDS = {
    "LDG": (LOAD,), "STG": (STORE,), "LDGSTS": (LOAD, SHARED),
    "UTMALDG": (LOAD, SHARED), "UTMASTG": (STORE, SHARED), "UTMAREDG": (ATOMIC, SHARED),
    "UBLKRED": (ATOMIC, SHARED), "LD": (GENERIC,), "ST": (GENERIC,),
    "LDL": (LOCAL,), "STL": (LOCAL,),
    "ATOMS": (ATOMIC, SHARED), "REDAS": (ATOMIC, SHARED), "BAR": (BARRIER,), "MUFU": (SPECIAL,),
    **dict.fromkeys(("LDS", "STS", "LDSM", "STSM", "STAS"), (SHARED,)),
    **dict.fromkeys(("ATOM", "ATOMG", "RED", "REDG"), (ATOMIC,)),
    **dict.fromkeys(("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU"), (BRANCH,)),
    **dict.fromkeys(("DADD", "DFMA", "DMUL", "DSETP", "DMNMX"), (FP64,)),
    **dict.fromkeys(
        (
            "FADD", "FADD2", "FADD32I", "FCHK", "FFMA", "FFMA2", "FFMA32I", "FMNMX", "FMNMX3",
            "FMUL", "FMUL2", "FMUL32I", "FSET", "FSETP", "FSWZADD", "UFADD", "UFFMA", "UFMNMX",
            "UFMUL", "UFSET", "UFSETP",
        ),
        (FP32,),
    ),
    **dict.fromkeys(
        (
            "BMSK", "BREV", "FLO", "IABS", "IADD", "IADD3", "IADD32I", "IDP", "IDP4A", "IMAD",
            "IMNMX", "IMUL", "IMUL32I", "ISCADD", "ISCADD32I", "ISETP", "LEA", "LOP", "LOP3",
            "LOP32I", "POPC", "SHF", "SHL", "SHR", "VABSDIFF", "VABSDIFF4", "VIADD", "VIADDMNMX",
            "VIMNMX", "VIMNMX3", "UBMSK", "UBREV", "UFLO", "UIABS", "UIADD3", "UIMAD", "UIMNMX",
            "UISETP", "ULEA", "ULOP", "ULOP3", "UPOPC", "USHF", "USHL", "USHR", "UVIADD",
            "UVIMNMX",
        ),
        (INTEGER,),
    ),
}  # fmt: skip
"""Source: CUDA Binary Utilities, "Instruction Set Reference", Volta to Blackwell."""
_TENSOR = re.compile(r"(UTC)?[HIBDQO](MX)?G?MMA|UTC(MX)?[HIQO]MMA")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_MOVE = re.compile(r"RZ, RZ\b")
"""The factors of an IMAD that only moves its summand."""


@dataclass
class _Function:
    entry: bool = False
    barriers: int | None = None
    instructions: list[Instruction] = field(default_factory=list)


def kernels(listing: str) -> dict[str, Code]:
    """Return the code of each kernel of a listing by its symbol, with the functions in its section."""
    found: dict[str, _Function] = {}
    current, label = None, ""
    for line in listing.splitlines():
        if match := _SECTION.match(line) or _FUNCTION.match(line):
            current = found.setdefault(match[1], _Function())
        elif current is None:
            continue
        elif match := _INSTRUCTION.match(line):
            address, opcode, modifiers, operands = match.groups()
            if not _padding(opcode, operands, address, label):
                current.instructions.append(_instruction(opcode, modifiers, operands))
            label = ""
        elif match := _LABEL.match(line):
            label = match[1]
        elif _ENTRY.match(line):
            current.entry = True
        elif match := _BARRIERS.search(line):
            current.barriers = int(match[1])
    marked = any(each.entry for each in found.values())
    return {
        name: counted(each.instructions, GPU_KINDS, each.barriers)
        for name, each in found.items()
        if each.instructions and (each.entry or not marked)
    }


def _padding(opcode: str, operands: str, address: str, label: str) -> bool:
    """Whether it only fills the section: nothing, or the endless loop behind the last exit."""
    if opcode == "NOP":
        return True
    target = operands.strip()
    return opcode == "BRA" and (
        target == f"`({label})" or target == f"0x{address.lstrip('0') or '0'}"
    )


def _instruction(opcode: str, modifiers: str, operands: str) -> Instruction:
    parts = modifiers.split(".")[1:]
    if opcode == "UBLKCP":  # destination before source: G is global memory
        return Instruction(opcode, (STORE if parts[:1] == ["G"] else LOAD, SHARED))
    if _TENSOR.fullmatch(opcode):
        return Instruction(opcode, (TENSOR,))
    if opcode == "IMAD" and "X" not in parts and (parts[:1] == ["MOV"] or _MOVE.search(operands)):
        return Instruction(opcode)
    kinds = _KINDS.get(opcode, ())
    width = None
    if opcode in {"LDG", "STG", "LDGSTS"}:
        width = next((_WIDTHS[part] for part in parts if part in _WIDTHS), 4)
    return Instruction(opcode, kinds, width)
