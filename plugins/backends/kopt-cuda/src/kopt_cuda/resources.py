"""What compiled kernels use of a GPU, from the assembler's log, and what a launch adds to it."""

from __future__ import annotations

import re

from kopt.model.record import Record

_KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_FIGURES = {
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "registers": re.compile(r"Used (\d+) registers"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
}
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


class KernelResources(Record):
    """One compiled kernel; what differs between launches is None until one is known."""

    name: str
    architecture: str
    """As ``sm_90a``."""
    registers: int | None
    """Of 32 bits, per thread; None where the assembler did not say."""
    spill_bytes: int | None
    """Spill stores plus loads per thread, as ptxas counts them."""
    stack_bytes: int
    """Local memory of a thread that is indexed at run time, or spilled."""
    static_shared_bytes: int
    """Shared memory per block that the source declares with a size."""
    constant_bytes: int
    shared_bytes: int
    """Shared memory per block, with what the launch adds."""
    threads: int | None = None
    """Per block."""
    grid: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    limits_exceeded: tuple[str, ...] = ()
    """Why a block cannot start on that architecture; empty: it can."""


def resources_of(log: str) -> dict[str, KernelResources]:
    """Return what the assembler's log says of each kernel, by its name."""
    parts = _KERNEL.split(log)
    found = {}
    for name, architecture, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        figures = {
            key: int(match[1]) if (match := pattern.search(text)) else None
            for key, pattern in _FIGURES.items()
        }
        spills = _SPILLS.search(text)
        shared = figures["static_shared_bytes"] or 0
        found[name] = KernelResources(
            name=name, architecture=architecture, registers=figures["registers"],
            spill_bytes=int(spills[1]) + int(spills[2]) if spills else None,
            stack_bytes=figures["stack_bytes"] or 0, static_shared_bytes=shared,
            constant_bytes=sum(map(int, _CONSTANT.findall(text))), shared_bytes=shared,
        )  # fmt: skip
    return found
