"""Profiles of single kernels: what their build says, their code, and how many fit a multiprocessor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from kopt.model.diagnosis import KernelProfile, metrics_of
from kopt_static.occupancy import MULTIPROCESSORS, WARP, Occupancy, multiprocessor, occupancy

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt_static.code import Code


def profile_of(
    kernel: Mapping[str, Any], code: Code | None, device: Device
) -> tuple[KernelProfile, tuple[str, ...]]:
    """Return the profile of one of a build's kernels, and what could not be told of it."""
    name = str(kernel.get("name", ""))
    grid = prod(kernel["grid"]) if kernel.get("grid") else None
    units = device.units if device.kind == "cuda" else None
    fits, notes = _occupancy(kernel, code)
    values = _used(kernel) | {"grid_blocks": grid, "multiprocessors": units}
    if fits:
        values |= _limits(fits, grid, units)
    notes += [] if grid else ["its grid is not known before it runs, so its waves are not"]
    if (values.get("cluster_blocks") or 1) > 1:
        notes.append(
            "its clusters may leave multiprocessors unused: there are at least these waves"
        )
    if code:
        values |= code.metrics
        notes += _of_code(code)
    profile = KernelProfile(
        name=name, metrics=metrics_of(values), raw=dict(code.opcodes) if code else {}
    )
    return profile, tuple(f"{name}: {note}" for note in notes)


def of_function(name: str, code: Code) -> KernelProfile:
    """Return the profile of a function of which there is nothing but its code."""
    return KernelProfile(name=name, metrics=metrics_of(code.metrics), raw=dict(code.opcodes))


def _of_code(code: Code) -> Iterator[str]:
    if code.generic:
        yield (
            f"{code.generic} accesses of memory do not name its space: they are counted neither as "
            "global nor as shared nor as local"
        )


def _threads(kernel: Mapping[str, Any]) -> int | None:
    if kernel.get("threads"):
        return int(kernel["threads"])
    return WARP * int(kernel["num_warps"]) if kernel.get("num_warps") else None


def _used(kernel: Mapping[str, Any]) -> dict[str, float | None]:
    static, shared = kernel.get("static_shared_bytes"), kernel.get("shared_bytes")
    dynamic = None if static is None or shared is None else shared - static
    return {
        "registers_per_thread": kernel.get("registers"),
        "static_shared_bytes": static,
        "dynamic_shared_bytes": dynamic,
        "shared_bytes": shared,
        "spill_bytes": kernel.get("spill_bytes"),
        "stack_bytes": kernel.get("stack_bytes"),
        "block_threads": _threads(kernel),
        "cluster_blocks": prod(kernel["cluster"]) if kernel.get("cluster") else None,
    }


def _occupancy(kernel: Mapping[str, Any], code: Code | None) -> tuple[Occupancy | None, list[str]]:
    """Return how many blocks fit, and notes on what is wrong or unknown there."""
    threads = _threads(kernel)
    if threads is None:
        return None, ["the threads of its blocks are not known, so its occupancy is not"]
    architecture = str(kernel.get("architecture", ""))
    on = multiprocessor(architecture)
    if on is None:
        known = ", ".join(f"sm_{each}" for each in MULTIPROCESSORS)
        return None, [
            f"no occupancy: what a multiprocessor of {architecture or 'this GPU'} holds is not "
            f"known, only of {known}"
        ]
    fits = occupancy(
        on, threads, kernel.get("registers"), kernel.get("shared_bytes"),
        code.barriers if code else None,
    )  # fmt: skip
    notes = [f"a block cannot start: {why}" for why in kernel.get("limits_exceeded", ())]
    if fits.resident is None:
        notes.append("no occupancy: its registers or its shared memory are not known")
    elif fits.limited_by_barriers:
        notes.append(f"its {code.barriers if code else 0} block barriers limit its occupancy")
    return fits, notes


def _limits(fits: Occupancy, grid: int | None, units: int | None) -> dict[str, float | None]:
    at_a_time = fits.resident * units if fits.resident and units else None
    return {
        "blocks_limit_registers": fits.registers,
        "blocks_limit_shared": fits.shared,
        "blocks_limit_warps": fits.warps,
        "blocks_limit_blocks": fits.blocks,
        "theoretical_occupancy_percent": fits.percent,
        "waves": grid / at_a_time if grid and at_a_time else None,
    }
