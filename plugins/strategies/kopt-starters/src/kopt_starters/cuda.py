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


def scratch(name: str, extent: str, *, dtype: str = "float32", zeroed: bool = False) -> list[str]:
    """Return a buffer of ``extent`` elements as lines of a header."""
    lines = [f"[scratch.{name}]", f"shape = {json.dumps([extent])}", f'dtype = "{dtype}"']
    return [*lines, "zeroed = true"] if zeroed else lines


def group_product(dtype: str, columns: int) -> str:
    """Return the statement by which a warpgroup multiplies 64 rows and so many columns.

    It adds to ``c`` if ``added`` is not 0, over 32 bytes of the depth of what ``a`` and ``b``
    describe: PTX ISA, ``wgmma.mma_async``.
    """
    count, size = columns // 2, ELEMENTS[dtype].size
    kind = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[dtype]
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{32 // size}.f32.{kind}.{kind}"
    layout = ", 0, 0" if size == 2 else ""
    named = ", ".join(f"%{n}" for n in range(count))
    sums = ", ".join(f'"+f"(c[{n}])' for n in range(count))
    return (
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                 "{name} "\n'
        f'                 "{{{named}}}, %{count}, %{count + 1}, p, 1, 1{layout};\\n}}"\n'
        f'                 : {sums}\n                 : "l"(a), "l"(b), "r"(added));'
    )
