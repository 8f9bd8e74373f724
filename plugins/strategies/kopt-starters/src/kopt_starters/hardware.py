"""What a GPU's architecture decides about a kernel: how its tensor cores take their operands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt.model.device import Device

_MEASURED = 90
"""What a device without an ``sm_`` name is taken for: most defaults were measured there."""
_SHARED_BYTES = {
    "sm_75": 48 << 10,
    "sm_80": 160 << 10,
    "sm_90": 224 << 10,
    "sm_100": 224 << 10,
    "sm_103": 224 << 10,
}
"""What is left of CUDA's limit for a block, less what the system keeps, by architecture."""


def capability(device: Device) -> int:
    """Return ten times the major plus the minor number: 90 for ``sm_90``."""
    found = re.fullmatch(r"sm_(\d+)[af]?", device.architecture)
    return int(found[1]) if found else _MEASURED


def shared_bytes(device: Device) -> int:
    """Return the bytes of shared memory that one block may take; 96 KiB where that is not known."""
    return _SHARED_BYTES.get(device.architecture, 96 << 10)


def operands_in_registers(device: Device) -> bool:
    """Whether registers hold what is multiplied as well as the sums: tiles have to be smaller.

    Tensor cores of Hopper (``wgmma``) and of Blackwell's data-centre parts (``tcgen05``) take
    operands from shared memory; those of Ampere, Ada and ``sm_120`` do not.
    """
    return not 90 <= capability(device) < 120


def has_warpgroup_products(device: Device) -> bool:
    """Whether four warps multiply together what lies in shared memory (``wgmma``): Hopper alone."""
    return capability(device) == 90


def sums_in_tensor_memory(device: Device) -> bool:
    """Whether sums lie in tensor memory (512 columns of 128 for a block), as on ``sm_100``."""
    return 100 <= capability(device) < 120


def copies_tiles(device: Device) -> bool:
    """Whether there is hardware for tensor descriptors; elsewhere Triton computes addresses."""
    return capability(device) >= 90
