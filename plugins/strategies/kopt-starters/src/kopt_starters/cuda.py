"""What every template in CUDA C++ leaves open: element types, accesses of several bytes, launches."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ACCESS_BYTES = 16
"""The most that a thread reads or writes at once."""


class Element(NamedTuple):
    """A dtype in CUDA C++."""

    type: str
    include: str
    """The header that declares it."""
    wide: str
    """``value`` converted to float."""
    pair: str
    """A type of four bytes that a kernel's parameter may point to."""
    size: int
    """In bytes."""


ELEMENTS = {
    "float32": Element("float", "cstdint", "value", "float", 4),
    "float16": Element("__half", "cuda_fp16.h", "__half2float(value)", "__half2", 2),
    "bfloat16": Element(
        "__nv_bfloat16", "cuda_bf16.h", "__bfloat162float(value)", "__nv_bfloat162", 2
    ),
}
"""By dtype, as ``float32``."""


def piece_of(itemsize: int, *extents: int) -> int:
    """Return how many elements can be read at once where each extent is a whole number of them."""
    return math.gcd(ACCESS_BYTES // itemsize, *extents)


def memory_of(element: Element, piece: int) -> str:
    """Return the type of ``piece`` elements read at once; pointers to it say how they are aligned."""
    nbytes = piece * element.size
    return {16: "uint4", 8: "uint2", 4: element.pair}.get(nbytes, element.type)


def places(dtype: str, piece: int) -> dict[str, str]:
    """Return what ``pieces.cu`` leaves open."""
    element = ELEMENTS[dtype]
    return {
        "element": element.type,
        "include": element.include,
        "wide": element.wide,
        "memory": memory_of(element, piece),
        "piece": str(piece),
    }


def launch(
    kernel: str,
    grid: Sequence[str | int],
    block: Sequence[str | int],
    arguments: Sequence[str | int],
) -> list[str]:
    """Return a launch as lines of a header."""
    return [
        "[[launch]]",
        f'kernel = "{kernel}"',
        f"grid = {json.dumps(list(grid))}",
        f"block = {json.dumps(list(block))}",
        f"arguments = {json.dumps(list(arguments))}",
    ]


def scratch(name: str, extent: str) -> list[str]:
    """Return a buffer of ``extent`` floats as lines of a header."""
    return [f"[scratch.{name}]", f"shape = {json.dumps([extent])}", 'dtype = "float32"']
