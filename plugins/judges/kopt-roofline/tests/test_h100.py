"""Kernels whose faults are known, by what counters of an H100 and an H200 said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kopt.model.diagnosis import Diagnosis

KERNELS = json.loads((Path(__file__).parent / "h100_kernels.json").read_text())["kernels"]
MEDIAN = json.loads((Path(__file__).parent / "h200_median_filter.json").read_text())
MATRIX = 4096 * 4096 * 4


def _call(name: str, compulsory: float) -> dict[str, float]:
    duration, moved = KERNELS[name]["duration_us"], KERNELS[name]["dram_bytes"]
    return {
        "latency_us": duration, "compulsory_bytes": compulsory, "bound_us": compulsory / 3.03e6,
        "memory_bound_us": compulsory / 3.03e6, "moved_over_compulsory": moved / compulsory,
        "kernel_launches": 1, "launch_overhead_us": 2.2, "matrix_flops": 0,
    }  # fmt: skip


def _names(diagnosis: Diagnosis) -> list[str]:
    return [finding.bottleneck for finding in diagnosis.findings]


def test_32_blocks_on_132_multiprocessors_are_grid_starvation(judge) -> None:
    diagnosis = judge(KERNELS["row_sum"], call=_call("row_sum", MATRIX + 4096 * 4))
    assert _names(diagnosis)[:2] == ["grid-starvation", "uncoalesced"]
    assert diagnosis.evidence[:2] == ("grid_blocks = 32", "multiprocessors = 132")
    assert diagnosis.findings[0].gain == pytest.approx(4.26, abs=0.01)
    assert diagnosis.headroom == pytest.approx(12.3, abs=0.1)


def test_so_are_they_where_only_the_compulsory_bytes_of_the_call_are_known(judge) -> None:
    call = {"latency_us": 272.4, "compulsory_bytes": MATRIX}
    assert judge(KERNELS["row_sum"], call=call).bottleneck == "grid-starvation"


def test_sectors_that_the_l1_has_are_not_what_takes_the_time(judge) -> None:
    """Neighbouring pixels are read three times, of which two are in the L1: half-used sectors, 40 %
    of its time. Whole ones made it slower (one column a thread, 1.17x); more loads of a thread under
    way made it faster (four columns a thread, 0.97x)."""
    diagnosis = judge(MEDIAN["kernel"], call=MEDIAN["call"])
    assert diagnosis.bottleneck == "latency-bound"
    (scattered,) = [f for f in diagnosis.findings if f.bottleneck == "uncoalesced"]
    assert scattered.gain == pytest.approx(1.21, abs=0.01)


def test_an_unpadded_tile_has_bank_conflicts(judge) -> None:
    diagnosis = judge(KERNELS["transpose"], call=_call("transpose", 2 * MATRIX))
    assert diagnosis.bottleneck == "bank-conflicts"
    assert diagnosis.findings[0].gain == pytest.approx(2.0, abs=0.2)
    assert "pad-shared" in diagnosis.findings[0].moves


def test_atomics_on_eight_addresses_cost_more_than_local_memory(judge) -> None:
    diagnosis = judge(KERNELS["spill"], call=_call("spill", MATRIX))
    assert _names(diagnosis)[:2] == ["atomics", "spills"]


def test_local_memory_comes_first_where_there_are_no_atomics(judge) -> None:
    quiet = {"atomic_requests": 0, "atomic_sectors": 0, "atomics_per_kilo_instruction": 0}
    diagnosis = judge(KERNELS["spill"] | quiet, call=_call("spill", MATRIX))
    assert diagnosis.bottleneck == "spills"


@pytest.mark.parametrize("blocks", [16, 32, 64])
@pytest.mark.parametrize("registers", [32, 128, 255])
def test_a_matrix_vector_product_of_few_blocks_is_never_register_pressure(
    judge, blocks: int, registers: int
) -> None:
    """Coalesced loads, a few warps a multiprocessor, most of them without any."""
    limit = 65536 // (registers * 128)
    active = 100 * blocks / 132
    kernel = {
        "duration_us": 2000, "grid_blocks": blocks, "block_threads": 128, "multiprocessors": 132,
        "waves": blocks / (132 * limit), "registers_per_thread": registers,
        "blocks_limit_registers": limit, "blocks_limit_shared": 32, "blocks_limit_warps": 16,
        "blocks_limit_blocks": 32, "theoretical_occupancy_percent": 6.25 * limit,
        "achieved_occupancy_percent": 6.25 * active / 100, "sm_active_percent": active,
        "sm_busy_percent": 0.1 * active, "memory_busy_percent": 0.5 * active,
        "dram_busy_percent": 0.5 * active, "l2_busy_percent": 0.3 * active, "l1_busy_percent": 20,
        "load_sectors_per_request": 16, "load_sector_use_percent": 100,
        "stall_long_scoreboard_percent": 88, "issue_active_percent": 6,
        "local_instructions": 0, "local_sectors": 0, "instructions": 1e7,
        "global_load_bytes": 4.3e9, "global_store_bytes": 4096, "dram_bytes": 4.3e9,
    }  # fmt: skip
    call = {
        "latency_us": 2000, "bound_us": 1420, "compulsory_bytes": 4.3e9, "matrix_flops": 4.3e9,
        "moved_over_compulsory": 1.0,
    }  # fmt: skip
    diagnosis = judge(kernel, call=call | {"latency_us": 1420 * 100 / (0.5 * active)})
    assert diagnosis.bottleneck == "grid-starvation"
