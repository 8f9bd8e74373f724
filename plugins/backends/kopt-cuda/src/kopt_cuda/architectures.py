"""What a launch may ask of each NVIDIA architecture, for checks made without the GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kopt.errors import CandidateError
from kopt.model.verification import Status

_NAMED = re.compile(r"sm_(\d{2,3})([af]?)")
MOST_THREADS = 1024
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters can start; up to 16 with an opt-in."""
MOST_CLUSTER_OPT_IN = 16
PLAIN_SHARED = 48 << 10
"""Bytes of shared memory that a block gets without the opt-in."""
_NEEDS_SPECIFIC = re.compile(r"\b(wgmma|setmaxnreg|tcgen05)\b|\bcp\.async\.bulk\.tensor\b")


@dataclass(frozen=True)
class Architecture:
    """Figures of one compute capability.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    capability: int
    """Ten times the major plus the minor number: 90 for ``sm_90``."""
    shared_bytes: int
    """Most shared memory, static and dynamic, that one block may opt in to."""
    suffix: str = ""
    """``a`` where the name asked for the architecture-specific instructions."""
    registers: int = 65536
    """32-bit registers of one block."""

    @property
    def name(self) -> str:
        """As ``sm_90``."""
        return f"sm_{self.capability}"

    @property
    def clusters(self) -> bool:
        """Whether it has thread-block clusters."""
        return self.capability >= 90

    def compiled_as(self, source: str, wanted: bool | None) -> str:
        """Return the name for the compiler: ``sm_90a`` where the source needs what only that has.

        ``wanted`` is the header's ``architecture_specific``; None: look at the source.
        """
        if self.capability < 90:
            return self.name
        needed = bool(_NEEDS_SPECIFIC.search(source)) if wanted is None else wanted
        return self.name + (self.suffix or ("a" if needed else ""))


_SHARED_BYTES = {
    75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448,
    103: 232448, 110: 232448, 120: 101376, 121: 101376,
}  # fmt: skip


def named(architecture: str) -> Architecture:
    """Return the GPU architecture that a name stands for. Raises CandidateError (unsupported)."""
    match = _NAMED.fullmatch(architecture)
    capability = int(match[1]) if match else 0
    if match is None or capability not in _SHARED_BYTES:
        known = ", ".join(f"sm_{each}" for each in _SHARED_BYTES)
        raise CandidateError(
            Status.UNSUPPORTED, f"no limits are known for {architecture!r}; name one of {known}"
        )
    return Architecture(capability, _SHARED_BYTES[capability], match[2])
