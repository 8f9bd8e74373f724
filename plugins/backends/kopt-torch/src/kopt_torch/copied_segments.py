"""Device memory that a candidate has a copy of, where the driver shares none between processes.

The judge copies its memory to the host before a candidate's calls, the candidate copies that to memory of
its own; after the calls it goes back the same way. So the addresses that a kernel sees stay, and what is
beyond a tensor's ends is copied with it. It takes the memory twice, and time beside the timed calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from kopt.env import may_share_device_memory
from kopt.worker.segments import Segment
from kopt_torch.cuda_segments import CudaSegment, next_id


class CopiedSegment:
    """Memory of the judge on a device, and the same bytes in memory of the host that others map."""

    def __init__(self, nbytes: int, device: str = "cuda") -> None:
        self.id = next_id()
        self.nbytes = nbytes
        self.bytes = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._device = device
        self._host = Segment(nbytes)
        self._mapped = torch.frombuffer(self._host.map, dtype=torch.uint8)

    def announcement(
        self, alive: Callable[[], bool] | None = None
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return what a candidate process must be told, and the descriptor of the host's memory."""
        self.push()
        told = {"id": self.id, "kind": "copied", "nbytes": self.nbytes, "device": self._device}
        return told, (self._host.fd,)

    def push(self) -> None:
        """Put the content where a candidate process fetches it."""
        self._mapped.copy_(self.bytes)

    def pull(self) -> None:
        """Take what a candidate process stored for the content."""
        self.bytes.copy_(self._mapped)

    def close(self) -> None:
        """Give the memory back, on the host once the candidate's process lets go of it too."""
        self.bytes = self._mapped = torch.empty(0, dtype=torch.uint8)
        self._host.close()


class Copy:
    """A candidate process's copy of a segment, on its device; it begins with what is there."""

    def __init__(self, mapped: memoryview, device: str) -> None:
        self._mapped = torch.frombuffer(mapped, dtype=torch.uint8)
        self.bytes = torch.empty(len(mapped), dtype=torch.uint8, device=device)
        self.fetch()

    def fetch(self) -> None:
        """Take what the judge has put there."""
        self.bytes.copy_(self._mapped)

    def store(self) -> None:
        """Put the content where the judge takes it from."""
        self._mapped.copy_(self.bytes)


def device_segment(nbytes: int) -> CudaSegment | CopiedSegment:
    """Return memory on the GPU that candidate processes open, or have a copy of."""
    return CudaSegment(nbytes) if shares_memory() else CopiedSegment(nbytes)


@functools.cache
def shares_memory() -> bool:
    """Whether the driver shares device memory between processes; ``KOPT_CUDA_IPC=off``: it need not."""
    if not may_share_device_memory():
        return False
    try:
        torch.empty(1, dtype=torch.uint8, device="cuda").untyped_storage()._share_cuda_()
    except RuntimeError:
        return False
    return True
