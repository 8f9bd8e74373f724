"""What the instructions of one kernel add up to, whatever they are written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

INSTRUCTIONS = "static_instructions"
LOAD = "static_global_loads"
STORE = "static_global_stores"
SHARED = "static_shared_accesses"
LOCAL = "static_local_accesses"
TENSOR = "static_tensor_instructions"
FP32 = "static_fp32_instructions"
FP64 = "static_fp64_instructions"
SPECIAL = "static_special_instructions"
INTEGER = "static_integer_instructions"
ATOMIC = "static_atomic_instructions"
BARRIER = "static_barriers"
BRANCH = "static_branches"
VECTOR = "static_vector_instructions"
SCALAR_FLOAT = "static_scalar_float_instructions"
WIDEST = "static_widest_global_bytes"
NARROWEST = "static_narrowest_global_bytes"
VECTOR_BITS = "static_vector_bits"
GENERIC = "generic"
"""A GPU access whose address space the instruction does not tell; no metric."""

GPU_KINDS = (
    LOAD, STORE, SHARED, LOCAL, TENSOR, FP32, FP64, SPECIAL, INTEGER, ATOMIC, BARRIER, BRANCH,
)  # fmt: skip
CPU_KINDS = (VECTOR, SCALAR_FLOAT, BRANCH)


class Instruction(NamedTuple):
    """One instruction of a listing."""

    opcode: str
    """As the listing has it, without what follows the first point."""
    kinds: tuple[str, ...] = ()
    """The metrics that it counts for."""
    width: int | None = None
    """Bytes of a thread's global access, where the instruction tells."""


class Code(NamedTuple):
    """The counted code of one kernel."""

    metrics: dict[str, float]
    """By kopt's names; what was looked for and is not there is zero."""
    opcodes: dict[str, int]
    """How often each is there."""
    generic: int = 0
    """Accesses that may be global, shared or local."""
    barriers: int | None = None
    """Block barriers that the kernel reserves; None: the listing does not say."""


def counted(
    instructions: Sequence[Instruction], kinds: Iterable[str], barriers: int | None = None
) -> Code:
    """Count the instructions of one kernel by ``kinds``, and the widths of its global accesses."""
    found = Counter(kind for each in instructions for kind in each.kinds)
    metrics: dict[str, float] = {INSTRUCTIONS: len(instructions)}
    metrics |= {kind: found[kind] for kind in kinds}
    widths = [each.width for each in instructions if each.width is not None]
    if widths:
        metrics |= {WIDEST: max(widths), NARROWEST: min(widths)}
    opcodes = Counter(each.opcode for each in instructions)
    return Code(metrics, dict(opcodes.most_common()), found[GENERIC], barriers)
