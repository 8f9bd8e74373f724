"""Which finding comes first where one fault shows in many counters, as such kernels show it."""

from __future__ import annotations

import pytest

from kopt_roofline.synthetic import KERNEL

HEALTHY = {name: float(levels[0]) for name, levels in KERNEL.items()} | {
    "multiprocessors": 132.0, "dram_busy_percent": 30.0, "memory_busy_percent": 40.0,
    "static_widest_global_bytes": 4.0, "l2_busy_percent": 30.0,
}  # fmt: skip
CALL = {
    "latency_us": 300.0, "bound_us": 45.0, "memory_bound_us": 45.0, "compulsory_bytes": 134e6,
    "moved_over_compulsory": 1.0, "launch_overhead_us": 2.2, "kernel_launches": 1.0,
    "matrix_flops": 0.0,
}  # fmt: skip

CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "uncoalesced": (
        {"load_sectors_per_request": 32, "load_sector_use_percent": 6.25, "global_load_bytes": 2.1e9,
         "l2_busy_percent": 80, "memory_busy_percent": 85, "l1_busy_percent": 85,
         "stall_long_scoreboard_percent": 85, "dram_busy_percent": 20},
        {},
    ),
    "divergence": (
        {"threads_per_instruction": 2.5, "active_threads_per_instruction": 2.5,
         "issue_active_percent": 92, "sm_busy_percent": 90, "pipe_fma_percent": 45,
         "dram_busy_percent": 6, "memory_busy_percent": 8, "stall_wait_percent": 30},
        {"latency_us": 600},
    ),
    "two-pass-traffic": (
        {"dram_busy_percent": 86, "memory_busy_percent": 88, "stall_long_scoreboard_percent": 70,
         "pipe_special_percent": 12},
        {"moved_over_compulsory": 2.0, "latency_us": 110},
    ),
    "occupancy-registers": (
        {"registers_per_thread": 255, "blocks_limit_registers": 1, "theoretical_occupancy_percent": 12.5,
         "achieved_occupancy_percent": 12.4, "waves": 2, "grid_blocks": 264, "issue_active_percent": 8,
         "stall_long_scoreboard_percent": 92, "dram_busy_percent": 35, "memory_busy_percent": 35},
        {},
    ),
    "occupancy-shared": (
        {"blocks_limit_shared": 1, "shared_bytes": 196608, "theoretical_occupancy_percent": 6.25, "waves": 4,
         "achieved_occupancy_percent": 6.2, "grid_blocks": 528, "issue_active_percent": 7,
         "stall_long_scoreboard_percent": 80, "dram_busy_percent": 18, "memory_busy_percent": 18},
        {},
    ),
    "occupancy-blocks": (
        {"blocks_limit_registers": 64, "blocks_limit_shared": 64, "blocks_limit_warps": 64,
         "blocks_limit_blocks": 32, "theoretical_occupancy_percent": 50, "block_threads": 32,
         "achieved_occupancy_percent": 30, "stall_long_scoreboard_percent": 70,
         "dram_busy_percent": 60, "memory_busy_percent": 66, "issue_active_percent": 10},
        {"latency_us": 75},
    ),
    "tail-wave": (
        {"waves": 1.03, "grid_blocks": 136, "sm_active_percent": 51, "sm_busy_percent": 48,
         "issue_active_percent": 94, "pipe_fma_percent": 92, "theoretical_occupancy_percent": 50,
         "achieved_occupancy_percent": 49, "blocks_limit_registers": 1, "block_threads": 1024,
         "dram_busy_percent": 8, "memory_busy_percent": 9},
        {"latency_us": 60, "bound_us": 6},
    ),
    "sync-stalls": (
        {"stall_barrier_percent": 48, "stall_short_scoreboard_percent": 20, "l1_busy_percent": 45,
         "issue_active_percent": 50, "sm_busy_percent": 50, "dram_busy_percent": 15,
         "active_threads_per_instruction": 20},
        {},
    ),
    "special-functions": (
        {"pipe_special_percent": 95, "pipe_fma_percent": 38, "issue_active_percent": 55,
         "sm_busy_percent": 95, "stall_short_scoreboard_percent": 15, "dram_busy_percent": 18},
        {},
    ),
    "index-arithmetic": (
        {"integer_percent": 85, "pipe_alu_percent": 60, "issue_active_percent": 88,
         "sm_busy_percent": 88, "pipe_fma_percent": 50, "dram_busy_percent": 20,
         "load_sectors_per_request": 1},
        {},
    ),
    "l2-bound": (
        {"l2_busy_percent": 75, "memory_busy_percent": 75, "dram_busy_percent": 5, "l2_bytes": 1.1e9,
         "dram_bytes": 3e7, "stall_long_scoreboard_percent": 85, "l1_busy_percent": 55},
        {"compulsory_bytes": 3.3e7},
    ),
    "latency-bound": (
        {"stall_long_scoreboard_percent": 95, "l2_busy_percent": 20, "memory_busy_percent": 25,
         "dram_busy_percent": 8, "load_sectors_per_request": 1.1, "load_sector_use_percent": 14,
         "issue_active_percent": 10},
        {},
    ),
    "no-tensor-cores": (
        {"pipe_fma_percent": 70, "issue_active_percent": 75, "sm_busy_percent": 75,
         "fp32_operations": 1.7e10, "l1_busy_percent": 70, "dram_busy_percent": 3},
        {"matrix_flops": 1.7e10, "compulsory_bytes": 2.5e7, "bound_us": 23, "memory_bound_us": 8},
    ),
    "tensor-underfed": (
        {"pipe_tensor_percent": 22, "stall_barrier_percent": 22, "stall_long_scoreboard_percent": 40,
         "l1_busy_percent": 55, "dram_busy_percent": 4, "issue_active_percent": 35},
        {"matrix_flops": 1.7e10, "compulsory_bytes": 2.5e7, "bound_us": 23, "memory_bound_us": 8},
    ),
    "dram-bound": (
        {"dram_busy_percent": 91, "memory_busy_percent": 92, "dram_gb_s": 2950,
         "stall_long_scoreboard_percent": 92, "issue_active_percent": 8},
        {"latency_us": 49},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", CASES)
def test_the_fault_comes_first(judge, fault: str) -> None:
    kernel, call = CASES[fault]
    diagnosis = judge(HEALTHY | kernel, call=CALL | call, products=True)
    found = [(finding.bottleneck, finding.gain) for finding in diagnosis.findings]
    assert diagnosis.bottleneck == fault, found


def test_32_short_launches_are_launch_bound(judge) -> None:
    step = HEALTHY | {
        "duration_us": 2.6, "grid_blocks": 256.0, "waves": 0.24, "dram_busy_percent": 12.0,
        "memory_busy_percent": 15.0, "sm_active_percent": 80.0,
    }  # fmt: skip
    call = {"latency_us": 75.0, "bound_us": 0.2, "kernel_launches": 32.0, "compulsory_bytes": 5e5}
    diagnosis = judge(*[step] * 32, call=CALL | call, names=["step"] * 32)
    assert diagnosis.bottleneck == "launch-bound"
