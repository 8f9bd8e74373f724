"""The one table from Nsight Compute's metrics to kopt's, and what it makes of a launch.

What the metrics mean: Nsight Compute documentation, Profiling Guide, "Metrics Structure" and
"Metrics Reference"; the warp states: the same, "Warp Scheduler States".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kopt.model.diagnosis import KernelProfile, Metric, metrics_of

Raw = dict[str, float | str]
"""Nsight names to values in base units (bytes, nanoseconds, cycles)."""


class Source(NamedTuple):
    """How one metric comes from Nsight's: the sum of ``of`` over the sum of ``over``, scaled.

    An entry is a name, or a product as ``a * b``; a name that counts twice is there twice.
    """

    name: str
    of: tuple[str, ...]
    over: tuple[str, ...] = ()
    scale: float = 1.0
    least: float = -math.inf
    """Smaller values stand for this one, as Nsight's 0 for a launch without clusters."""


_ACTIVE = ".avg.pct_of_peak_sustained_active"
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_BY_LSU = "_pipe_lsu_mem_"
_INSTRUCTIONS = "smsp__inst_executed.sum"
_LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
_DURATION = "gpu__time_duration.sum"
_DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
_PREDICATED_ON = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"


def _thread(kind: str) -> str:
    return f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum"


def _both(start: str, *operations: str) -> tuple[str, ...]:
    return tuple(f"{start}_op_{operation}.sum" for operation in operations)


_SECTORS = f"l1tex__t_sectors{_BY_LSU}global"
_REQUESTS = f"l1tex__t_requests{_BY_LSU}global"
_ATOMICS = _both(_REQUESTS, "atom", "red")
_WAVEFRONTS = _both("l1tex__data_pipe_lsu_wavefronts_mem_shared", "ld", "st")
_CONFLICTS = _both(f"l1tex__data_bank_conflicts{_BY_LSU}shared", "ld", "st")

SMALL: tuple[Source, ...] = (
    Source("duration_us", (_DURATION,), scale=1e-3),
    Source("grid_blocks", ("launch__grid_size",)),
    Source("block_threads", ("launch__block_size",)),
    Source("cluster_blocks", ("launch__cluster_size",), least=1),
    Source("multiprocessors", ("device__attribute_multiprocessor_count",)),
    Source("waves", ("launch__waves_per_multiprocessor",)),
    Source("registers_per_thread", ("launch__registers_per_thread",)),
    Source("static_shared_bytes", _SHARED[:1]),
    Source("dynamic_shared_bytes", _SHARED[1:]),
    Source("shared_bytes", _SHARED),  # without the KiB that the driver takes of each block
    Source("blocks_limit_registers", ("launch__occupancy_limit_registers",)),
    Source("blocks_limit_shared", ("launch__occupancy_limit_shared_mem",)),
    Source("blocks_limit_warps", ("launch__occupancy_limit_warps",)),
    Source("blocks_limit_blocks", ("launch__occupancy_limit_blocks",)),
    Source("theoretical_occupancy_percent", ("sm__maximum_warps_per_active_cycle_pct",)),
    Source("achieved_occupancy_percent", (f"sm__warps_active{_ACTIVE}",)),
    Source("sm_busy_percent", (f"sm__throughput{_ELAPSED}",)),
    Source("memory_busy_percent", (f"gpu__compute_memory_throughput{_ELAPSED}",)),
    Source("dram_busy_percent", (f"gpu__dram_throughput{_ELAPSED}",)),
    Source("dram_read_bytes", _DRAM[:1]),
    Source("dram_write_bytes", _DRAM[1:]),
    Source("dram_bytes", _DRAM),
    Source("dram_gb_s", _DRAM, over=(_DURATION,)),  # bytes a nanosecond
)
"""What the launch was, how long it took, what it moved."""

_MEMORY = (
    Source("l2_busy_percent", (f"lts__throughput{_ELAPSED}",)),
    Source("l1_busy_percent", (f"l1tex__throughput{_ACTIVE}",)),
    Source("l2_bytes", ("lts__t_bytes.sum",)),
    Source("l2_hit_percent", ("lts__t_sector_hit_rate.pct",)),
    Source("l1_hit_percent", ("l1tex__t_sector_hit_rate.pct",)),
    Source("load_requests", _both(_REQUESTS, "ld")),
    Source("store_requests", _both(_REQUESTS, "st")),
    Source("load_sectors_per_request", _both(_SECTORS, "ld"), over=_both(_REQUESTS, "ld")),
    Source("store_sectors_per_request", _both(_SECTORS, "st"), over=_both(_REQUESTS, "st")),
    Source("load_sector_use_percent", ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",)),
    Source("global_load_bytes", _both(f"l1tex__t_bytes{_BY_LSU}global", "ld")),
    Source("global_store_bytes", _both(f"l1tex__t_bytes{_BY_LSU}global", "st")),
    Source("local_instructions", ("smsp__sass_inst_executed_op_local.sum",)),
    Source("local_sectors", _both(f"l1tex__t_sectors{_BY_LSU}local", "ld", "st")),
    Source("shared_requests", tuple(f"smsp__inst_executed_op_shared_{op}.sum" for op in ("ld", "st"))),
    Source("shared_wavefronts", _WAVEFRONTS),
    Source("shared_conflicts", _CONFLICTS),
    Source("shared_conflict_percent", _CONFLICTS, over=_WAVEFRONTS, scale=100),
    Source("atomic_requests", _ATOMICS),
    Source("atomic_sectors", _both("lts__t_sectors", "atom", "red")),
    Source("atomics_per_kilo_instruction", _ATOMICS, over=(_INSTRUCTIONS,), scale=1000),
)  # fmt: skip

_ISSUE = (
    Source("instructions", (_INSTRUCTIONS,)),
    Source("ipc", ("sm__inst_executed.avg.per_cycle_active",)),
    Source("issue_active_percent", (f"smsp__issue_active{_ACTIVE}",)),
    Source("eligible_warps", ("smsp__warps_eligible.avg.per_cycle_active",)),
    Source("active_warps", ("smsp__warps_active.avg.per_cycle_active",)),
    Source("warp_cycles_per_instruction", (_LATENCY,)),
    Source("threads_per_instruction", ("smsp__thread_inst_executed_per_inst_executed.ratio",)),
    Source("active_threads_per_instruction", (_PREDICATED_ON,)),
    Source("divergent_branches", ("smsp__sass_branch_targets_threads_divergent.sum",)),
    Source("cycles_active", ("sm__cycles_active.avg",)),
    Source("cycles_elapsed", ("sm__cycles_elapsed.max",)),
    Source("sm_active_percent", ("sm__cycles_active.avg",), over=("sm__cycles_elapsed.max",), scale=100),
)  # fmt: skip

_PIPES = (
    Source("pipe_fma_percent", (f"sm__pipe_fma_cycles_active{_ACTIVE}",)),
    Source("pipe_alu_percent", (f"sm__pipe_alu_cycles_active{_ACTIVE}",)),
    Source("pipe_fp16_percent", (f"sm__inst_executed_pipe_fp16{_ACTIVE}",)),
    Source("pipe_fp64_percent", (f"sm__pipe_fp64_cycles_active{_ACTIVE}",)),
    Source("pipe_special_percent", (f"sm__inst_executed_pipe_xu{_ACTIVE}",)),
    Source("pipe_lsu_percent", (f"sm__inst_executed_pipe_lsu{_ACTIVE}",)),
    Source("pipe_tensor_percent", (f"sm__pipe_tensor_cycles_active{_ACTIVE}",)),
    Source("pipe_uniform_percent", (f"sm__inst_executed_pipe_uniform{_ACTIVE}",)),
    Source("fp32_operations", tuple(_thread(op) for op in ("fadd", "fmul", "ffma", "ffma"))),
    Source("fp64_operations", tuple(_thread(op) for op in ("dfma", "dfma"))),
    Source("integer_instructions", (_thread("integer"),)),
    Source("conversion_instructions", (_thread("conversion"),)),
    Source("memory_instructions", (_thread("memory"),)),
    Source("control_instructions", (_thread("control"),)),
    Source("integer_percent", (_thread("integer"),), over=(f"{_INSTRUCTIONS} * {_PREDICATED_ON}",), scale=100),
)  # fmt: skip

_WARP_STATES = {
    "long_scoreboard": "long_scoreboard", "short_scoreboard": "short_scoreboard",
    "barrier": "barrier", "membar": "membar", "lg_throttle": "lg_throttle",
    "mio_throttle": "mio_throttle", "tex_throttle": "tex_throttle",
    "math_pipe_throttle": "math_pipe_throttle", "wait": "wait", "no_instruction": "no_instruction",
    "imc_miss": "imc_miss", "branch_resolve": "branch_resolving",
    "dispatch_stall": "dispatch_stall", "drain": "drain", "sleeping": "sleeping",
    "not_selected": "not_selected", "gmma": "gmma",
}  # fmt: skip
"""kopt's names of what a warp waits for to Nsight's."""

_STALLS = tuple(
    Source(
        f"stall_{ours}_percent",
        (f"smsp__average_warps_issue_stalled_{theirs}_per_issue_active.ratio",),
        over=(_LATENCY,),
        scale=100,
    )
    for ours, theirs in _WARP_STATES.items()
)

TABLE: tuple[Source, ...] = (*SMALL, *_MEMORY, *_ISSUE, *_PIPES, *_STALLS)
"""Every metric that Nsight Compute can tell of a launch."""


def nsight_names(sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the Nsight metrics that ``sources`` need, each once, in a fixed order."""
    entries = [entry for source in sources for entry in (*source.of, *source.over)]
    return tuple(dict.fromkeys(name for entry in entries for name in entry.split(" * ")))


def kernel_of(name: str, raw: Raw) -> KernelProfile:
    """Return one launch with kopt's metrics; those whose Nsight metrics are missing are absent."""
    values = {source.name: _value(source, raw) for source in TABLE}
    return KernelProfile(name=name, metrics=metrics_of(values), raw=raw)


def with_shares(kernels: Sequence[KernelProfile]) -> tuple[KernelProfile, ...]:
    """Return the launches of one whole call with each one's share of their time."""
    total = total_us(kernels)
    if not total:
        return tuple(kernels)
    return tuple(
        kernel.model_copy(
            update={"metrics": (*kernel.metrics, *_share(metric(kernel, "duration_us"), total))}
        )
        for kernel in kernels
    )


def total_us(kernels: Sequence[KernelProfile]) -> float | None:
    """Return the sum of the launches' times; None where one of them has none."""
    times = [metric(kernel, "duration_us") for kernel in kernels]
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None


def metric(kernel: KernelProfile, name: str) -> float | None:
    """Return one metric of a launch by kopt's name; None where it is absent."""
    return next((each.value for each in kernel.metrics if each.name == name), None)


def _share(time: float | None, total: float) -> tuple[Metric, ...]:
    return () if time is None else metrics_of({"share_percent": 100 * time / total})


def _value(source: Source, raw: Raw) -> float | None:
    numerator = _total(source.of, raw)
    denominator = _total(source.over, raw) if source.over else 1.0
    if numerator is None or not denominator:
        return None
    value = source.scale * numerator / denominator
    return max(value, source.least) if math.isfinite(value) else None


def _total(entries: Sequence[str], raw: Mapping[str, float | str]) -> float | None:
    values = [[raw.get(name) for name in entry.split(" * ")] for entry in entries]
    if not all(isinstance(value, int | float) for product in values for value in product):
        return None
    return math.fsum(math.prod(float(value or 0) for value in product) for product in values)
