"""Made-up profiles over the range of what devices show: what the lint asks the rules about."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kopt_roofline.merging import Merged, MergedKernel

Levels = Mapping[str, Sequence[float]]


class Point(NamedTuple):
    """One made-up profile, with the device's facts."""

    device: str
    """``cuda`` or ``cpu``."""
    merged: Merged
    facts: dict[str, float]


GPU_FACTS = {
    "multiprocessors": 132.0, "peak_gb_s": 3000.0, "peak_launch_us": 2.2,
    "peak_fp32_tflops": 50.0, "peak_tensor_tflops": 700.0, "tensor_cores": 1.0,
}  # fmt: skip
CPU_FACTS = {"cpus": 16.0, "peak_gb_s": 100.0, "peak_fp32_tflops": 1.0}

CALL: Levels = {
    "latency_us": (300, 10, 100, 3000), "compulsory_bytes": (134e6, 2e6, 500e6),
    "bound_us": (45, 1, 15, 150), "matrix_flops": (0, 2e9, 2e11), "memory_bound_us": (45, 5, 150),
    "launch_overhead_us": (2.2,), "kernel_launches": (1, 2, 32), "kernels_us": (290, 8, 95),
    "span_us": (295, 100), "idle_us": (0, 60), "moved_over_compulsory": (1, 1.4, 2.5, 8),
    "copy_us": (60, 5, 99, 295),
}  # fmt: skip
"""Levels of a call on a GPU; a healthy one comes first."""

KERNEL: Levels = {
    "duration_us": (290, 3, 95, 2900), "grid_blocks": (16384, 16, 128, 140, 700),
    "block_threads": (256, 32, 1024), "waves": (16, 0.02, 0.3, 1.06, 2.4),
    "blocks_limit_registers": (8,), "blocks_limit_shared": (16,), "blocks_limit_warps": (8,),
    "blocks_limit_blocks": (32,), "registers_per_thread": (32,), "shared_bytes": (1024,),
    "theoretical_occupancy_percent": (100,), "achieved_occupancy_percent": (90, 5, 24, 45),
    "sm_active_percent": (98, 12, 55, 85), "sm_busy_percent": (30, 2, 65, 95),
    "memory_busy_percent": (50, 3, 75, 95), "dram_busy_percent": (45, 2, 25, 72, 92),
    "l2_busy_percent": (40, 2, 60, 90), "l1_busy_percent": (35, 2, 60, 97),
    "dram_bytes": (134e6, 10e6, 1e9), "dram_gb_s": (1500, 100, 2800), "l2_bytes": (140e6, 2e9),
    "l2_hit_percent": (50, 5, 95), "l1_hit_percent": (20, 0, 88),
    "load_sectors_per_request": (4, 1, 16, 32), "store_sectors_per_request": (4, 16, 32),
    "load_sector_use_percent": (100, 12.5, 50), "global_load_bytes": (67e6, 1e9),
    "global_store_bytes": (67e6, 1e6, 1e9), "load_requests": (5e5,), "store_requests": (5e5,),
    "local_instructions": (0, 1e6), "local_sectors": (0, 1e6, 3e7), "instructions": (2e7, 1e6),
    "shared_wavefronts": (1e6, 0, 2e7), "shared_conflict_percent": (0, 30, 95),
    "atomic_requests": (0, 4e5), "atomic_sectors": (0, 1e7),
    "atomics_per_kilo_instruction": (0, 1, 30), "issue_active_percent": (30, 1, 55, 90),
    "threads_per_instruction": (32, 3, 16, 26), "active_threads_per_instruction": (31, 3, 15),
    "warp_cycles_per_instruction": (20, 5, 90, 4000), "pipe_fma_percent": (10, 1, 45, 90),
    "pipe_alu_percent": (10, 55, 90), "pipe_fp16_percent": (0, 40),
    "pipe_special_percent": (2, 45, 95), "pipe_tensor_percent": (0, 15, 45, 80),
    "fp32_operations": (1e7, 2e11), "integer_percent": (30, 45, 75),
    "stall_long_scoreboard_percent": (25, 2, 50, 90), "stall_short_scoreboard_percent": (5, 30),
    "stall_lg_throttle_percent": (1, 30), "stall_mio_throttle_percent": (1, 25),
    "stall_drain_percent": (1, 20), "stall_barrier_percent": (3, 25, 60),
    "stall_membar_percent": (0, 30), "stall_wait_percent": (10, 30, 60),
}  # fmt: skip
"""Levels of what counters say of a kernel."""

CODE: Levels = {
    "registers_per_thread": (32, 128, 255), "spill_bytes": (0, 64, 400),
    "static_widest_global_bytes": (16, 2, 4), "static_tensor_instructions": (0, 40),
    "static_fp32_instructions": (100, 0), "grid_blocks": (16384, 16, 128),
    "theoretical_occupancy_percent": (100,), "blocks_limit_registers": (8,),
    "blocks_limit_shared": (16,), "blocks_limit_warps": (8,), "blocks_limit_blocks": (32,),
}  # fmt: skip
"""Levels of what a kernel's code says, without any counter."""

CPU_CALL: Levels = {
    "latency_us": (300, 20, 3000), "compulsory_bytes": (4e6, 1e3, 5e8), "bound_us": (100, 5, 200, 290),
    "memory_bound_us": (40, 4), "compute_bound_us": (0, 100), "achieved_gb_s": (20, 1, 75, 95),
    "cpu_task_us": (4000, 300, 600), "cpu_instructions_per_cycle": (2.5, 0.4, 1.2),
    "cache_misses": (5e4, 1e2, 1e7), "matrix_flops": (0, 1e9),
}  # fmt: skip
CPU_CODE: Levels = {
    "static_vector_instructions": (50, 0), "static_scalar_float_instructions": (5, 0, 100),
    "static_vector_bits": (256, 0, 512),
}  # fmt: skip

_TOGETHER: tuple[dict[str, float], ...] = (
    {"blocks_limit_registers": 1, "theoretical_occupancy_percent": 12.5, "registers_per_thread": 255},
    {"blocks_limit_shared": 1, "theoretical_occupancy_percent": 6.25, "shared_bytes": 2e5},
    {"blocks_limit_registers": 64, "blocks_limit_shared": 64, "blocks_limit_warps": 64,
     "theoretical_occupancy_percent": 50, "block_threads": 32},
    {"atomics_per_kilo_instruction": 30, "atomic_requests": 4e5, "atomic_sectors": 1e7,
     "stall_long_scoreboard_percent": 65, "stall_lg_throttle_percent": 30, "l2_busy_percent": 2,
     "dram_busy_percent": 1, "memory_busy_percent": 2, "warp_cycles_per_instruction": 4000},
)  # fmt: skip
"""Metrics that one fault moves together: three limits of the warps of a multiprocessor, atomics."""

_UNHEALTHY = (0.0, 0.03, 0.08, 0.2, 0.5, 0.8)
"""Chances that a metric is not at its healthy level: one fault alone, and many together."""


def points(count: int, seed: int = 0) -> Iterator[Point]:
    """Yield made-up profiles: of counters, of code alone, of a trace alone, and of CPUs."""
    chance = random.Random(seed)
    for at in range(count):
        kind = ("counters", "counters", "counters", "code", "call", "cpu")[at % 6]
        yield _point(kind, chance)


def counted(changes: Mapping[str, float], call: Mapping[str, float] | None = None) -> Point:
    """Return a healthy kernel as counters show it, with some metrics changed."""
    kernel = {name: float(levels[0]) for name, levels in KERNEL.items()} | dict(changes)
    whole = {name: float(levels[0]) for name, levels in CALL.items()} | dict(call or {})
    return _on_gpu(whole, kernel)


def _point(kind: str, chance: random.Random) -> Point:
    if kind == "cpu":
        call, code = _drawn(CPU_CALL, chance), _drawn(CPU_CODE, chance)
        kernels = [MergedKernel("kernel", code)] if chance.random() < 0.7 else []
        return Point("cpu", Merged(_whole(call), kernels), CPU_FACTS)
    call = _drawn(CALL, chance)
    if kind == "counters":
        return _on_gpu(call, _with_fault(_drawn(KERNEL, chance), chance))
    call.pop("moved_over_compulsory", None)
    return _on_gpu(call, _with_fault(_drawn(CODE, chance), chance) if kind == "code" else None)


def _with_fault(kernel: dict[str, float], chance: random.Random) -> dict[str, float]:
    """Return a kernel, one in four with a fault that moves several metrics together."""
    if chance.random() < 0.75:
        return kernel
    fault = chance.choice(_TOGETHER)
    return {name: fault.get(name, value) for name, value in kernel.items()}


def _on_gpu(call: dict[str, float], kernel: dict[str, float] | None) -> Point:
    kernels = [] if kernel is None else [MergedKernel("kernel", kernel)]
    return Point("cuda", Merged(_whole(call), kernels), GPU_FACTS)


def _drawn(levels: Levels, chance: random.Random) -> dict[str, float]:
    """Return a level of each metric; some profiles lack some metrics."""
    odds = chance.choice(_UNHEALTHY)
    absent = chance.choice((0.0, 0.0, 0.2))
    drawn = {
        name: float(chance.choice(each) if chance.random() < odds else each[0])
        for name, each in levels.items()
    }
    return {n: v for n, v in drawn.items() if n == "latency_us" or chance.random() >= absent}


def _whole(call: Mapping[str, float]) -> dict[str, float]:
    """Return a call's metrics with those that follow from them."""
    made = dict(call)
    latency = made["latency_us"]
    if "bound_us" in made:
        made["of_bound_percent"] = min(100.0, 100 * made["bound_us"] / latency)
    if "copy_us" in made:
        made["of_copy_percent"] = 100 * made["copy_us"] / latency
    if "compulsory_bytes" in made:
        made.setdefault("achieved_gb_s", made["compulsory_bytes"] / latency / 1e3)
    if "matrix_flops" in made:
        made["achieved_tflops"] = made["matrix_flops"] / latency / 1e6
    return made
