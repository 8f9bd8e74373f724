"""A bound call as a program of its own: its tensors in files, its scalars in generated code."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kopt.model.values import TensorRef
from kopt.worker.segments import ALIGNMENT, span_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kopt.model.executable import Memory
    from kopt.model.values import CallSpec

CALLS = 2
"""Times that a program calls the kernel, on the same inputs: what it keeps between calls counts."""
MAIN = "main.cpp"
TOKEN, DONE = "token", "done"
"""Files where a program runs: what it has to say at its end, which it takes, and where it says it."""


@dataclass
class _Tensor:
    """Bytes that one or more overlapping tensors of the call share."""

    start: int
    stop: int
    parts: list[tuple[str, TensorRef, int]]
    """Name, reference and address."""

    @property
    def names(self) -> str:
        return "/".join(dict.fromkeys(name for name, _, _ in self.parts))

    def content(self, memory: Memory) -> bytearray:
        content = bytearray(self.stop - self.start)
        for _, ref, address in self.parts:
            at = address - self.start
            content[at : at + span_bytes(ref)] = memory.buffer(ref)
        return content


class SanitizedCall:
    """One bound call: which tensors its pointers mean, and what else it passes."""

    def __init__(
        self, entry: str, arguments: Sequence[Any], call: CallSpec, memory: Memory
    ) -> None:
        """``arguments``: as they are passed through ctypes."""
        self._entry = entry
        self._arguments = arguments
        self._memory = memory
        pointers = {a.value for a in arguments if isinstance(a, ctypes.c_void_p)}
        self._tensors = _merged([p for p in _tensors(call, memory) if p[2] in pointers])

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that it passes."""
        return sum(tensor.stop - tensor.start for tensor in self._tensors)

    def write(self, folder: Path) -> dict[int, str]:
        """Write the program and its inputs; return which tensor each line of it allocates.

        The program runs in a folder within ``folder``.
        """
        for index, tensor in enumerate(self._tensors):
            (folder / f"{index}.bin").write_bytes(tensor.content(self._memory))
        lines = self._program()
        (folder / MAIN).write_text("\n".join(lines) + "\n", encoding="utf-8")
        starts = {f"    Tensor t{i}(": t.names for i, t in enumerate(self._tensors)}
        return {
            number: name
            for number, line in enumerate(lines, 1)
            for start, name in starts.items()
            if line.startswith(start)
        }

    def _program(self) -> list[str]:
        types = ", ".join(_type(argument) for argument in self._arguments)
        indices = range(len(self._tensors))
        made = [
            f'    Tensor t{i}("../{i}.bin", {t.stop - t.start}, {t.start % ALIGNMENT});'
            for i, t in enumerate(self._tensors)
        ]
        passed = ", ".join(self._literal(argument) for argument in self._arguments)
        call = [*(f"        t{i}.read();" for i in indices), f"        kernel({passed});"]
        return [
            '#include "call.h"', "#define TEXT(x) #x", "#define NAME(x) TEXT(x)",
            f'extern "C" void kernel({types}) __asm__(NAME(__USER_LABEL_PREFIX__) "{self._entry}");',
            "int main() {", f'    const Token token("{TOKEN}");', *made,
            f"    for (int i = 0; i < {CALLS}; ++i) {{", *call, "    }",
            *(f"    t{i}.release();" for i in indices),
            f'    token.say("{DONE}");', "}",
        ]  # fmt: skip

    def _literal(self, argument: Any) -> str:
        match argument:
            case ctypes.c_void_p():
                for index, tensor in enumerate(self._tensors):
                    addresses = [address for _, _, address in tensor.parts]
                    if argument.value in addresses:
                        return f"t{index}.data + {argument.value - tensor.start}"
            case ctypes.c_double():
                return (
                    f"number(UINT64_C({struct.unpack('<Q', struct.pack('<d', argument.value))[0]}))"
                )
            case ctypes.c_int64():
                return f"static_cast<int64_t>(UINT64_C({argument.value % (1 << 64)}))"
        raise ValueError(f"{argument!r} is not an argument of this call")


def _type(argument: Any) -> str:
    if isinstance(argument, ctypes.c_void_p):
        return "void*"
    return "double" if isinstance(argument, ctypes.c_double) else "int64_t"


def _tensors(call: CallSpec, memory: Memory) -> list[tuple[str, TensorRef, int]]:
    named = [(argument.name, argument.value) for argument in call.arguments]
    named += list(call.state.items())
    named += [(f"out{index}", ref) for index, ref in enumerate(call.outputs)]
    return [
        (name, value, memory.address(value))
        for name, value in named
        if isinstance(value, TensorRef)
    ]


def _merged(parts: list[tuple[str, TensorRef, int]]) -> list[_Tensor]:
    """Return one tensor for parts that share bytes, or an address."""
    found: list[_Tensor] = []
    for part in sorted(parts, key=lambda part: part[2]):
        _, ref, address = part
        stop = address + span_bytes(ref)
        if found and (address < found[-1].stop or address == found[-1].start):
            found[-1].parts.append(part)
            found[-1].stop = max(found[-1].stop, stop)
        else:
            found.append(_Tensor(address, stop, [part]))
    return found
