"""Whether an architecture can start a launch: threads, registers, shared memory, grid, cluster."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.verification import Status
from kopt_cuda.architectures import (
    MOST_BLOCK,
    MOST_CLUSTER_OPT_IN,
    MOST_GRID,
    MOST_THREADS,
    Architecture,
)
from kopt_cuda.plan import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_cuda.binding import ResolvedLaunch
    from kopt_cuda.resources import KernelResources

_REGISTER_UNIT = 256
"""Registers are given out to a warp in multiples of this."""


def used_by(kernel: KernelResources, launch: ResolvedLaunch) -> KernelResources:
    """Return the resources of a kernel together with what a launch adds."""
    return kernel.model_copy(
        update={
            "shared_bytes": kernel.static_shared_bytes + launch.shared,
            "threads": prod(launch.block), "grid": launch.grid, "cluster": launch.cluster,
        }
    )  # fmt: skip


def check(
    source: str, index: int, launch: ResolvedLaunch, used: KernelResources, on: Architecture
) -> None:
    """Raise CandidateError where the GPU would refuse to start the launch.

    LAUNCH_FAILED for grid, block and cluster, COMPILE_ERROR for too much shared memory or too many
    registers.
    """
    said = (
        _extent_fault("grid", launch.grid, MOST_GRID)
        or _extent_fault("block", launch.block, MOST_BLOCK)
        or _threads_fault(launch)
        or _cluster_fault(launch)
    )
    if said:
        raise fault(
            source, f"launch of {launch.kernel}: {said[1]}", said[0], launch.kernel, launch=index,
            status=Status.LAUNCH_FAILED,
        )  # fmt: skip
    if text := _memory_fault(launch, used, on):
        raise fault(
            source, f"launch of {launch.kernel}: {text}", "shared", launch.kernel, launch=index,
            status=Status.COMPILE_ERROR,
        )  # fmt: skip


def _extent_fault(name: str, extents: Sequence[int], most: Sequence[int]) -> tuple[str, str] | None:
    if min(extents) < 1:
        return name, f"{name} is {list(extents)}; every extent has to be at least 1"
    if any(extent > limit for extent, limit in zip(extents, most, strict=True)):
        return name, f"{name} is {list(extents)}, at most {list(most)} is possible"
    return None


def _threads_fault(launch: ResolvedLaunch) -> tuple[str, str] | None:
    threads = prod(launch.block)
    if threads > MOST_THREADS:
        return "block", f"block has {threads} threads, at most {MOST_THREADS} are possible"
    return None


def _cluster_fault(launch: ResolvedLaunch) -> tuple[str, str] | None:
    if launch.cluster is None:
        return None
    blocks = prod(launch.cluster)
    if min(launch.cluster) < 1 or blocks > MOST_CLUSTER_OPT_IN:
        return "cluster", f"cluster is {list(launch.cluster)}: 1 to {MOST_CLUSTER_OPT_IN} blocks"
    if any(grid % each for grid, each in zip(launch.grid, launch.cluster, strict=True)):
        return "cluster", (
            f"grid {list(launch.grid)} is no multiple of cluster {list(launch.cluster)}"
        )
    return None


def _memory_fault(launch: ResolvedLaunch, used: KernelResources, on: Architecture) -> str | None:
    if launch.shared < 0:
        return f"shared is {launch.shared} bytes"
    if used.shared_bytes > on.shared_bytes:
        return (
            f"a block needs {used.shared_bytes} bytes of shared memory ({used.static_shared_bytes} "
            f"static, {launch.shared} dynamic), {on.name} gives {on.shared_bytes}; use smaller tiles"
        )
    per_warp = -(-32 * (used.registers or 0) // _REGISTER_UNIT) * _REGISTER_UNIT
    needed = per_warp * -(-prod(launch.block) // 32)
    if needed > on.registers:
        return (
            f"{prod(launch.block)} threads with {used.registers} registers need {needed} registers, "
            f"{on.name} gives a block {on.registers}; add __launch_bounds__({prod(launch.block)}) "
            "or use fewer threads"
        )
    return None
