"""The metrics that profilers report and judges read: their names, units and meanings."""

from __future__ import annotations

from typing import NamedTuple


class MetricInfo(NamedTuple):
    """What a metric's name stands for."""

    unit: str
    """``B``, ``us``, ``%``, ``GB/s``, ``TFLOP/s``, or empty for counts and ratios."""
    meaning: str


def _stalls() -> dict[str, MetricInfo]:
    reasons = {
        "long_scoreboard": "a result from global, local or texture memory",
        "short_scoreboard": "a result from shared memory or of a special function",
        "barrier": "other warps of its block at a barrier",
        "membar": "a memory fence",
        "lg_throttle": "room in the queue of global and local memory instructions",
        "mio_throttle": "room in the queue of shared memory and special instructions",
        "tex_throttle": "room in the queue of texture instructions",
        "math_pipe_throttle": "an arithmetic pipe that is busy",
        "wait": "a fixed latency between dependent instructions",
        "no_instruction": "an instruction to be fetched",
        "imc_miss": "a constant to be fetched",
        "branch_resolve": "the target of a branch",
        "dispatch_stall": "the dispatcher",
        "drain": "its stores to drain before it exits",
        "sleeping": "nothing: it sleeps",
        "not_selected": "its turn, though it could go on",
        "gmma": "an asynchronous tensor-core instruction",
    }
    return {
        f"stall_{name}_percent": MetricInfo(
            "%", f"part of a warp's time between two of its instructions that waits for {what}"
        )
        for name, what in reasons.items()
    }


CALL_METRICS: dict[str, MetricInfo] = {
    "latency_us": MetricInfo("us", "measured time of a call, device time on a GPU"),
    "call_us": MetricInfo("us", "measured wall-clock time of a call, launch overhead included"),
    "compulsory_bytes": MetricInfo("B", "every input read once and every output written once"),
    "matrix_flops": MetricInfo("", "floating-point operations of the problem's products and convolutions"),
    "vector_ops": MetricInfo("", "elements that the problem's other operators produce or reduce"),
    "bound_us": MetricInfo("us", "least time of the problem on this device at measured rates"),
    "memory_bound_us": MetricInfo("us", "least time for the compulsory bytes"),
    "compute_bound_us": MetricInfo("us", "least time for the matrix operations"),
    "achieved_gb_s": MetricInfo("GB/s", "compulsory bytes over the measured time"),
    "achieved_tflops": MetricInfo("TFLOP/s", "matrix operations over the measured time"),
    "of_bound_percent": MetricInfo("%", "the bound over the measured time"),
    "copy_us": MetricInfo("us", "measured time of a plain copy of as many bytes as are compulsory"),
    "of_copy_percent": MetricInfo("%", "that copy's time over the measured time"),
    "kernel_launches": MetricInfo("", "kernels that a call launches"),
    "kernels_us": MetricInfo("us", "sum of the kernels' own times"),
    "span_us": MetricInfo("us", "from the first kernel's start to the last one's end"),
    "idle_us": MetricInfo("us", "time within the span in which no kernel ran"),
    "launch_overhead_us": MetricInfo("us", "measured time of an empty launch on this device"),
    "cpu_cycles": MetricInfo("", "cycles of a call on all CPUs"),
    "cpu_instructions": MetricInfo("", "instructions of a call on all CPUs"),
    "cpu_instructions_per_cycle": MetricInfo("", "instructions over cycles"),
    "cache_misses": MetricInfo("", "last-level cache misses of a call"),
    "branch_misses": MetricInfo("", "mispredicted branches of a call"),
    "page_faults": MetricInfo("", "page faults of a call"),
    "context_switches": MetricInfo("", "context switches of a call"),
    "cpu_task_us": MetricInfo("us", "CPU time of a call on all CPUs"),
    "moved_over_compulsory": MetricInfo("", "bytes that all kernels moved from and to DRAM over compulsory bytes"),
}  # fmt: skip
"""Of a whole call."""

KERNEL_METRICS: dict[str, MetricInfo] = {
    "duration_us": MetricInfo("us", "time on the device"),
    "share_percent": MetricInfo("%", "its part of the time of all kernels of the call"),
    "grid_blocks": MetricInfo("", "blocks of the launch"),
    "block_threads": MetricInfo("", "threads of a block"),
    "cluster_blocks": MetricInfo("", "blocks of a cluster"),
    "multiprocessors": MetricInfo("", "streaming multiprocessors of the device"),
    "waves": MetricInfo("", "blocks over the blocks that the device can hold at a time"),
    "registers_per_thread": MetricInfo("", "32-bit registers"),
    "static_shared_bytes": MetricInfo("B", "shared memory of a block that its code declares"),
    "dynamic_shared_bytes": MetricInfo("B", "shared memory of a block that its launch asks for"),
    "shared_bytes": MetricInfo("B", "shared memory of a block in all"),
    "stack_bytes": MetricInfo("B", "local memory of a thread that its code reserves"),
    "spill_bytes": MetricInfo("B", "registers of a thread that the compiler keeps in memory"),
    "blocks_limit_registers": MetricInfo("", "blocks of a multiprocessor that registers allow"),
    "blocks_limit_shared": MetricInfo("", "blocks of a multiprocessor that shared memory allows"),
    "blocks_limit_warps": MetricInfo("", "blocks of a multiprocessor that its warps allow"),
    "blocks_limit_blocks": MetricInfo("", "blocks of a multiprocessor that the device allows"),
    "theoretical_occupancy_percent": MetricInfo("%", "warps that fit over warps that the device can hold"),
    "achieved_occupancy_percent": MetricInfo("%", "warps that were there over warps that the device can hold"),
    "sm_busy_percent": MetricInfo("%", "of the peak throughput of the multiprocessors"),
    "memory_busy_percent": MetricInfo("%", "of the peak throughput of the busiest part of the memory system"),
    "dram_busy_percent": MetricInfo("%", "of the peak throughput of DRAM"),
    "l2_busy_percent": MetricInfo("%", "of the peak throughput of the L2 cache"),
    "l1_busy_percent": MetricInfo("%", "of the peak throughput of L1 cache and shared memory"),
    "dram_read_bytes": MetricInfo("B", "read from DRAM"),
    "dram_write_bytes": MetricInfo("B", "written to DRAM"),
    "dram_bytes": MetricInfo("B", "moved from and to DRAM"),
    "dram_gb_s": MetricInfo("GB/s", "bytes moved from and to DRAM over the kernel's time"),
    "l2_bytes": MetricInfo("B", "moved through the L2 cache"),
    "l2_hit_percent": MetricInfo("%", "sectors that the L2 cache had"),
    "l1_hit_percent": MetricInfo("%", "sectors that the L1 cache had"),
    "load_sectors_per_request": MetricInfo("", "32-byte sectors per global load instruction of a warp"),
    "store_sectors_per_request": MetricInfo("", "32-byte sectors per global store instruction of a warp"),
    "load_requests": MetricInfo("", "global load instructions of warps"),
    "store_requests": MetricInfo("", "global store instructions of warps"),
    "load_sector_use_percent": MetricInfo("%", "bytes of each loaded sector that threads asked for"),
    "global_load_bytes": MetricInfo("B", "moved for global loads between L1 and threads, whole sectors"),
    "global_store_bytes": MetricInfo("B", "moved for global stores between L1 and threads, whole sectors"),
    "local_instructions": MetricInfo("", "local memory instructions of warps (spills, indexed arrays)"),
    "local_sectors": MetricInfo("", "32-byte sectors of local memory loads and stores"),
    "shared_requests": MetricInfo("", "shared memory instructions of warps"),
    "shared_wavefronts": MetricInfo("", "passes that shared memory needed for them"),
    "shared_conflicts": MetricInfo("", "passes of these that bank conflicts caused"),
    "shared_conflict_percent": MetricInfo("%", "passes caused by bank conflicts over all passes"),
    "atomic_requests": MetricInfo("", "global atomic and reduction instructions of warps"),
    "atomic_sectors": MetricInfo("", "atomic and reduction operations that the L2 cache did, in sectors"),
    "atomics_per_kilo_instruction": MetricInfo("", "global atomics and reductions per 1,000 instructions of warps"),
    "instructions": MetricInfo("", "instructions of warps"),
    "ipc": MetricInfo("", "instructions per cycle and multiprocessor"),
    "issue_active_percent": MetricInfo("%", "cycles in which a scheduler issued"),
    "eligible_warps": MetricInfo("", "warps that could go on, per cycle and scheduler"),
    "active_warps": MetricInfo("", "warps that were there, per cycle and scheduler"),
    "warp_cycles_per_instruction": MetricInfo("", "cycles between two instructions of a warp"),
    "threads_per_instruction": MetricInfo("", "threads of 32 that took part in an instruction"),
    "active_threads_per_instruction": MetricInfo("", "threads of 32 that were not predicated off in an instruction"),
    "divergent_branches": MetricInfo("", "branches on which threads of a warp disagreed"),
    "pipe_fma_percent": MetricInfo("%", "use of the FP32 pipe"),
    "pipe_alu_percent": MetricInfo("%", "use of the integer and logic pipe"),
    "pipe_fp16_percent": MetricInfo("%", "use of the FP16 pipe"),
    "pipe_fp64_percent": MetricInfo("%", "use of the FP64 pipe"),
    "pipe_special_percent": MetricInfo("%", "use of the pipe of special functions and conversions (XU)"),
    "pipe_lsu_percent": MetricInfo("%", "use of the load and store pipe"),
    "pipe_tensor_percent": MetricInfo("%", "cycles in which tensor cores worked"),
    "pipe_uniform_percent": MetricInfo("%", "use of the uniform pipe"),
    "fp32_operations": MetricInfo("", "FP32 additions, multiplications and twice the FMAs of threads"),
    "fp64_operations": MetricInfo("", "the same in FP64, as far as FMAs were counted"),
    "integer_instructions": MetricInfo("", "integer instructions of threads"),
    "conversion_instructions": MetricInfo("", "conversions of threads"),
    "memory_instructions": MetricInfo("", "load and store instructions of threads"),
    "control_instructions": MetricInfo("", "branches and the like of threads"),
    "integer_percent": MetricInfo("%", "integer instructions over all instructions of threads"),
    "cycles_active": MetricInfo("", "cycles in which a multiprocessor had a warp, mean"),
    "cycles_elapsed": MetricInfo("", "cycles of the kernel"),
    "sm_active_percent": MetricInfo("%", "cycles in which a multiprocessor had a warp over cycles of the kernel"),
    "static_instructions": MetricInfo("", "instructions in the code"),
    "static_global_loads": MetricInfo("", "global loads in the code"),
    "static_global_stores": MetricInfo("", "global stores in the code"),
    "static_widest_global_bytes": MetricInfo("B", "widest global access of a thread in the code"),
    "static_narrowest_global_bytes": MetricInfo("B", "narrowest global access of a thread in the code"),
    "static_shared_accesses": MetricInfo("", "shared memory accesses in the code"),
    "static_local_accesses": MetricInfo("", "local memory accesses in the code"),
    "static_tensor_instructions": MetricInfo("", "tensor-core instructions in the code"),
    "static_fp32_instructions": MetricInfo("", "FP32 arithmetic in the code"),
    "static_fp64_instructions": MetricInfo("", "FP64 arithmetic in the code"),
    "static_special_instructions": MetricInfo("", "special functions in the code"),
    "static_integer_instructions": MetricInfo("", "integer arithmetic in the code"),
    "static_atomic_instructions": MetricInfo("", "atomics and reductions in the code"),
    "static_barriers": MetricInfo("", "block barriers in the code"),
    "static_branches": MetricInfo("", "branches in the code"),
    "static_vector_instructions": MetricInfo("", "SIMD arithmetic in a CPU kernel's code"),
    "static_vector_bits": MetricInfo("", "widest SIMD register that a CPU kernel's code uses"),
    "static_scalar_float_instructions": MetricInfo("", "scalar float arithmetic in a CPU kernel's code"),
    **_stalls(),
}  # fmt: skip
"""Of one kernel of a call."""


def unit_of(name: str) -> str:
    """Return a metric's unit; KeyError where it is no metric of kopt."""
    return (CALL_METRICS.get(name) or KERNEL_METRICS[name]).unit
