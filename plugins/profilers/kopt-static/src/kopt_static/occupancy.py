"""How many blocks of a kernel one multiprocessor holds, and what limits them."""

from __future__ import annotations

import re
from dataclasses import dataclass

WARP = 32
_REGISTERS = 65536
_REGISTER_UNIT = 256
"""Registers are given out to a warp in multiples of this."""
_PARTITIONS = 4
"""Parts of a multiprocessor with registers of their own."""
_NAMED = re.compile(r"sm_(\d{2,3})[af]?")


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor of a compute capability holds."""

    warps: int
    blocks: int
    shared_bytes: int
    """At the largest carve-out, which the driver takes where a kernel needs it."""
    reserved_bytes: int = 1024
    """Shared memory of each block that the driver takes for itself."""
    shared_unit: int = 128
    """Shared memory is given out to a block in multiples of this."""
    barriers: int | None = None
    """Block barriers; None: they are no limit of their own."""


MULTIPROCESSORS = {
    70: Multiprocessor(64, 32, 96 << 10, reserved_bytes=0, shared_unit=256),
    75: Multiprocessor(32, 16, 64 << 10, reserved_bytes=0, shared_unit=256),
    80: Multiprocessor(64, 32, 164 << 10),
    86: Multiprocessor(48, 16, 100 << 10),
    87: Multiprocessor(48, 16, 164 << 10),
    88: Multiprocessor(48, 16, 100 << 10),
    89: Multiprocessor(48, 24, 100 << 10),
    90: Multiprocessor(64, 32, 228 << 10, barriers=64),
    100: Multiprocessor(64, 32, 228 << 10, barriers=64),
    103: Multiprocessor(64, 32, 228 << 10, barriers=64),
    110: Multiprocessor(48, 24, 228 << 10, barriers=24),
    120: Multiprocessor(48, 24, 100 << 10, barriers=24),
    121: Multiprocessor(48, 24, 100 << 10, barriers=24),
}
"""By ten times the major plus the minor number of the compute capability.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (warps,
blocks, shared memory); the occupancy calculator that is part of the CUDA toolkit 13.0
(cuda_occupancy.h: units, barriers).
"""


def multiprocessor(architecture: str) -> Multiprocessor | None:
    """Return what is known of an architecture, as ``sm_90a``; None: nothing."""
    match = _NAMED.fullmatch(architecture)
    return MULTIPROCESSORS.get(int(match[1])) if match else None


@dataclass(frozen=True)
class Occupancy:
    """Blocks that a multiprocessor holds, by what limits them; None: not known."""

    registers: int | None
    shared: int | None
    warps: int
    blocks: int
    barriers: int | None
    block_warps: int
    most_warps: int

    @property
    def resident(self) -> int | None:
        """Blocks at a time; None where registers or shared memory are not known."""
        if self.registers is None or self.shared is None:
            return None
        known = [self.registers, self.shared, self.warps, self.blocks]
        return min(known if self.barriers is None else [*known, self.barriers])

    @property
    def limited_by_barriers(self) -> bool:
        """Whether more blocks would fit if they had fewer block barriers."""
        known = (self.registers, self.shared, self.warps, self.blocks)
        return self.barriers is not None and all(
            each is not None and each > self.barriers for each in known
        )

    @property
    def percent(self) -> float | None:
        """Warps that are there over warps that there is room for."""
        if self.resident is None:
            return None
        return 100.0 * self.resident * self.block_warps / self.most_warps


def occupancy(
    on: Multiprocessor,
    threads: int,
    registers: int | None,
    shared_bytes: int | None,
    barriers: int | None = None,
) -> Occupancy:
    """Return the limits of a kernel of ``threads`` per block.

    :param registers: of a thread.
    :param shared_bytes: of a block, static and dynamic, without what the driver reserves.
    Source: the rules of NVIDIA's occupancy calculator (CUDA C++ Best Practices Guide, "Calculating
    Occupancy"). Zero: not even one block can start.
    """
    warps = -(-threads // WARP)
    return Occupancy(
        registers=None if registers is None else _by_registers(warps, registers),
        shared=None if shared_bytes is None else _by_shared(on, shared_bytes),
        warps=on.warps // warps,
        blocks=on.blocks,
        barriers=on.barriers // barriers if on.barriers and barriers else None,
        block_warps=warps,
        most_warps=on.warps,
    )


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit


def _by_registers(warps: int, registers: int) -> int:
    per_warp = _rounded(WARP * max(registers, 1), _REGISTER_UNIT)
    if per_warp * _rounded(warps, _PARTITIONS) > _REGISTERS:
        return 0  # the launch is refused, though fewer warps than a full set of parts might fit
    return _REGISTERS // _PARTITIONS // per_warp * _PARTITIONS // warps


def _by_shared(on: Multiprocessor, shared_bytes: int) -> int:
    """Blocks by shared memory; a block that takes none is limited by the number of blocks alone."""
    taken = _rounded(shared_bytes + on.reserved_bytes, on.shared_unit)
    return on.shared_bytes // taken if taken else on.blocks
