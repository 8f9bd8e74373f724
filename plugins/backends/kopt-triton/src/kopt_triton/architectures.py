"""What a kernel may use on each NVIDIA architecture, for checks made without the GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kopt.errors import CandidateError
from kopt.model.verification import Status

_NAMED = re.compile(r"sm_(\d{2,3})[af]?")


@dataclass(frozen=True)
class Architecture:
    """Per-block and per-device figures of one compute capability.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    capability: int
    """Ten times the major plus the minor number: 90 for ``sm_90``."""
    shared_bytes: int
    """Most shared memory that one block may opt in to."""
    units: int
    """Streaming multiprocessors of the largest common part; only host code asks for it."""
    registers: int = 65536
    """32-bit registers of one block."""
    tensor_columns: int = 512
    """Columns of tensor memory, which keeps what tensor cores add up; asked for from sm_100 on."""

    @property
    def name(self) -> str:
        """As ``sm_90``."""
        return f"sm_{self.capability}"

    @property
    def assembler_name(self) -> str:
        """The name that Triton hands to ptxas: ``sm_90a`` from Hopper on."""
        return f"{self.name}a" if self.capability >= 90 else self.name

    def beyond(self, metadata: Any) -> list[tuple[str, int, int]]:
        """Return of what a compiled kernel's block needs too much, how much, and what there is.

        Triton itself finds this out when it loads the binary on a GPU; what asks for too much
        tensor memory compiles to a kernel that traps.
        """
        columns = getattr(metadata, "tmem_size", None) or 0
        needed = [
            ("shared memory", metadata.shared, self.shared_bytes),
            ("tensor memory", columns, self.tensor_columns),
        ]
        return [(name, wanted, given) for name, wanted, given in needed if wanted > given]


_KNOWN = {
    item.capability: item
    for item in (
        Architecture(75, 65536, 72),
        Architecture(80, 166912, 108),
        Architecture(86, 101376, 84),
        Architecture(87, 166912, 16),
        Architecture(89, 101376, 128),
        Architecture(90, 232448, 132),
        Architecture(100, 232448, 148),
        Architecture(103, 232448, 148),
        Architecture(120, 101376, 170),
        Architecture(121, 101376, 48),
    )
}


def named(architecture: str) -> Architecture | None:
    """Return the GPU architecture that a name stands for; None for a CPU's (``native``).

    Raises CandidateError (unsupported) for an ``sm_`` name that is not known.
    """
    if not architecture.startswith("sm_"):
        return None
    match = _NAMED.fullmatch(architecture)
    found = _KNOWN.get(int(match.group(1))) if match else None
    if found is None:
        known = ", ".join(item.name for item in _KNOWN.values())
        raise CandidateError(
            Status.UNSUPPORTED, f"no limits are known for {architecture!r}; name one of {known}"
        )
    return found


STAND_IN = _KNOWN[90]
"""What host code is told where no GPU is there and none is named."""
