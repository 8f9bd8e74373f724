"""Each rule on both sides of each of its thresholds, with no more metrics than it needs."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kopt_roofline.rules import Rule, rulebook
from kopt_roofline.scope import Scope

BOOK = rulebook()
Values = dict[str, float]


class Case(NamedTuple):
    rule: str
    """The bottleneck, with a number where it has several rules."""
    holds: Values
    fails: tuple[Values, ...]
    """Changes of these; each alone makes the rule fail."""


OCCUPANCY = {
    "theoretical_occupancy_percent": 55.0, "blocks_limit_registers": 4.0, "blocks_limit_shared": 4.0,
    "blocks_limit_warps": 8.0, "blocks_limit_blocks": 4.0, "memory_busy_percent": 79.0,
    "sm_busy_percent": 10.0, "waves": 0.9, "issue_active_percent": 59.0, "pipe_tensor_percent": 9.0,
}  # fmt: skip
NOT_OCCUPANCY = (
    {"theoretical_occupancy_percent": 56.0}, {"memory_busy_percent": 80.0}, {"waves": 0.89},
    {"sm_busy_percent": 80.0}, {"issue_active_percent": 60.0}, {"pipe_tensor_percent": 10.0},
)  # fmt: skip
SLOW = {"achieved_gb_s": 59.0, "peak_gb_s": 100.0}
FAST = {"achieved_gb_s": 60.0}
PRODUCT = {
    "matrix_flops": 1e11, "compulsory_bytes": 6e9, "tensor_cores": 1.0, "pipe_tensor_percent": 1.9,
    "fp32_operations": 3e10, "pipe_fp16_percent": 0.0,
}  # fmt: skip

CASES = [
    Case("at-bound 1", {"of_bound_percent": 95}, ({"of_bound_percent": 94.9},)),
    Case(
        "at-bound 2",
        {"latency_us": 102, "copy_us": 100},
        ({"latency_us": 102.1}, {"latency_us": 79}),
    ),
    Case(
        "launch-bound 1",
        {"kernel_launches": 20, "launch_overhead_us": 2, "latency_us": 100},
        ({"kernel_launches": 19}, {"latency_us": 101}),
    ),
    Case(
        "launch-bound 2",
        {"idle_us": 30, "span_us": 100, "kernel_launches": 2, "kernels_us": 70, "latency_us": 100},
        ({"idle_us": 29}, {"kernel_launches": 1}, {"kernels_us": 71}),
    ),
    Case(
        "grid-starvation",
        {"grid_blocks": 131, "multiprocessors": 132, "dram_busy_percent": 59},
        ({"grid_blocks": 132}, {"dram_busy_percent": 60}),
    ),
    Case(
        "grid-starvation",
        {"grid_blocks": 500, "multiprocessors": 132, "waves": 0.49, "dram_busy_percent": 20},
        ({"waves": 0.5},),
    ),
    Case(
        "no-tensor-cores", PRODUCT,
        ({"matrix_flops": 9.5e10}, {"tensor_cores": 0}, {"pipe_tensor_percent": 2},
         {"fp32_operations": 2.9e10}, {"dram_busy_percent": 80}, {"matrix_flops": 0}),
    ),
    Case(
        "atomics",
        {"atomics_per_kilo_instruction": 2, "stall_long_scoreboard_percent": 40},
        ({"atomics_per_kilo_instruction": 1.9}, {"stall_long_scoreboard_percent": 39},
         {"dram_busy_percent": 70}),
    ),
    Case(
        "spills 1",
        {"local_instructions": 5, "instructions": 1000, "local_sectors": 10,
         "global_load_bytes": 90 * 32, "global_store_bytes": 0},
        ({"local_instructions": 4.9}, {"local_sectors": 9}),
    ),
    Case(
        "spills 2", {"spill_bytes": 16},
        ({"spill_bytes": 12}, {"local_instructions": 0, "instructions": 10}, {"of_bound_percent": 90}),
    ),
    Case(
        "uncoalesced",
        {"load_sectors_per_request": 5, "load_sector_use_percent": 70},
        ({"load_sectors_per_request": 4}, {"load_sector_use_percent": 71}),
    ),
    Case(
        "uncoalesced",
        {"load_sectors_per_request": 4, "load_sector_use_percent": 100,
         "store_sectors_per_request": 32, "static_widest_global_bytes": 4,
         "global_load_bytes": 100, "global_store_bytes": 60},
        ({"global_store_bytes": 50}, {"store_sectors_per_request": 16}),
    ),
    Case(
        "bank-conflicts",
        {"shared_conflict_percent": 20, "l1_busy_percent": 15},
        ({"shared_conflict_percent": 19}, {"l1_busy_percent": 14}),
    ),
    Case(
        "two-pass-traffic",
        {"moved_over_compulsory": 1.5, "compulsory_bytes": 1e6},
        ({"moved_over_compulsory": 1.49}, {"compulsory_bytes": 9e5},
         {"load_sectors_per_request": 32, "load_sector_use_percent": 12.5},
         {"local_sectors": 30, "global_load_bytes": 70 * 32, "global_store_bytes": 0}),
    ),
    Case(
        "divergence", {"threads_per_instruction": 24},
        ({"threads_per_instruction": 24.1}, {"dram_busy_percent": 70}),
    ),
    Case(
        "occupancy-registers", OCCUPANCY | {"blocks_limit_shared": 5.0, "blocks_limit_blocks": 5.0},
        (*NOT_OCCUPANCY, {"blocks_limit_registers": 6.0}),
    ),
    Case(
        "occupancy-shared", OCCUPANCY | {"blocks_limit_registers": 5.0, "blocks_limit_blocks": 5.0},
        (*NOT_OCCUPANCY, {"blocks_limit_shared": 6.0}),
    ),
    Case(
        "occupancy-blocks", OCCUPANCY | {"blocks_limit_registers": 5.0, "blocks_limit_shared": 5.0},
        (*NOT_OCCUPANCY, {"blocks_limit_blocks": 6.0}),
    ),
    Case(
        "index-arithmetic",
        {"integer_percent": 40, "pipe_alu_percent": 50, "issue_active_percent": 40,
         "memory_busy_percent": 74},
        ({"integer_percent": 39}, {"pipe_alu_percent": 49}, {"memory_busy_percent": 75},
         {"pipe_tensor_percent": 20}),
    ),
    Case(
        "special-functions",
        {"pipe_special_percent": 40, "pipe_fma_percent": 39},
        ({"pipe_special_percent": 39}, {"pipe_fma_percent": 41}, {"integer_percent": 50}),
    ),
    Case(
        "sync-stalls", {"stall_barrier_percent": 20},
        ({"stall_barrier_percent": 19}, {"dram_busy_percent": 75}),
    ),
    Case("sync-stalls", {"stall_barrier_percent": 5, "stall_membar_percent": 15},
         ({"stall_membar_percent": 14},)),
    Case(
        "tensor-underfed", {"pipe_tensor_percent": 2, "dram_busy_percent": 69},
        ({"pipe_tensor_percent": 1.9}, {"pipe_tensor_percent": 60}, {"dram_busy_percent": 70},
         {"matrix_flops": 0}, {"grid_blocks": 60, "multiprocessors": 132}),
    ),
    Case("tensor-bound", {"pipe_tensor_percent": 60}, ({"pipe_tensor_percent": 59},)),
    Case(
        "l2-bound", {"l2_busy_percent": 45, "dram_busy_percent": 35},
        ({"l2_busy_percent": 44}, {"dram_busy_percent": 36}, {"atomics_per_kilo_instruction": 2},
         {"load_sectors_per_request": 32, "load_sector_use_percent": 12.5}),
    ),
    Case(
        "tail-wave 1",
        {"waves": 1.7, "sm_active_percent": 86, "memory_busy_percent": 79},
        ({"waves": 0.99}, {"waves": 1.8}, {"sm_active_percent": 88}, {"memory_busy_percent": 80},
         {"waves": 6.01}),
    ),
    Case(
        "tail-wave 2",
        {"waves": 1, "sm_active_percent": 74, "memory_busy_percent": 79},
        ({"waves": 0.99}, {"sm_active_percent": 75}, {"memory_busy_percent": 80}),
    ),
    Case(
        "latency-bound 1",
        {"stall_long_scoreboard_percent": 35, "memory_busy_percent": 69},
        ({"stall_long_scoreboard_percent": 34}, {"memory_busy_percent": 70},
         {"issue_active_percent": 60}, {"theoretical_occupancy_percent": 50, "waves": 2},
         {"local_sectors": 30, "global_load_bytes": 70 * 32, "global_store_bytes": 0}),
    ),
    Case(
        "latency-bound 2",
        {"stall_wait_percent": 50, "memory_busy_percent": 59, "issue_active_percent": 59},
        ({"stall_wait_percent": 49}, {"memory_busy_percent": 60}, {"issue_active_percent": 60}),
    ),
    Case(
        "latency-bound 3",
        {"memory_busy_percent": 69, "issue_active_percent": 59},
        ({"memory_busy_percent": 70}, {"issue_active_percent": 60}),
    ),
    Case(
        "l1-bound", {"l1_busy_percent": 70, "dram_busy_percent": 69, "sm_active_percent": 80},
        ({"l1_busy_percent": 69}, {"dram_busy_percent": 70}, {"sm_active_percent": 79},
         {"pipe_tensor_percent": 20}),
    ),
    Case("dram-bound 1", {"dram_busy_percent": 70}, ({"dram_busy_percent": 69},)),
    Case("dram-bound 2", {"achieved_gb_s": 2100, "peak_gb_s": 3000}, ({"achieved_gb_s": 2099},)),
    Case("instruction-bound", {"sm_busy_percent": 60}, ({"sm_busy_percent": 59},
         {"pipe_tensor_percent": 20})),
    Case("cpu-memory-bound", SLOW | FAST, (SLOW,)),
    Case(
        "cpu-underused",
        {"cpus": 10, "cpu_task_us": 600, "latency_us": 100},
        ({"cpus": 1}, {"cpu_task_us": 601}, {"latency_us": 49, "cpu_task_us": 1}, SLOW | FAST),
    ),
    Case(
        "cpu-not-vectorised",
        {"static_scalar_float_instructions": 7, "static_vector_instructions": 3},
        ({"static_vector_instructions": 4}, {"static_scalar_float_instructions": 0}, SLOW | FAST),
    ),
    Case(
        "cpu-cache-misses",
        {"cache_misses": 2e6, "compulsory_bytes": 6.4e7},
        ({"cache_misses": 1.9e6}, {"compulsory_bytes": 9e4}, SLOW | FAST),
    ),
    Case("cpu-latency-bound", {"cpu_instructions_per_cycle": 0.9},
         ({"cpu_instructions_per_cycle": 1}, SLOW | FAST)),
    Case("cpu-compute-bound 1", {"cpu_instructions_per_cycle": 1},
         ({"cpu_instructions_per_cycle": 0.9}, SLOW | FAST)),
    Case(
        "cpu-compute-bound 2",
        {"compute_bound_us": 50, "memory_bound_us": 49, "of_bound_percent": 40},
        ({"memory_bound_us": 50}, {"of_bound_percent": 39}),
    ),
    Case("unexplained", {"latency_us": 1}, ({"latency_us": 0},)),
]  # fmt: skip


def _rule(label: str) -> Rule:
    name, _, number = label.partition(" ")
    rules = [rule for rule in BOOK.rules if rule.name == name]
    assert number or len(rules) == 1
    return rules[int(number or 1) - 1]


def _holds(rule: Rule, known: Values) -> bool | None:
    return rule.holds(Scope(known, BOOK.values))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_it_holds_on_one_side_of_each_threshold_only(case: Case) -> None:
    rule = _rule(case.rule)
    assert _holds(rule, case.holds) is True
    for change in case.fails:
        assert _holds(rule, case.holds | change) is False, change


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_it_predicts_a_gain_from_what_it_needs(case: Case) -> None:
    known = {"latency_us": 100.0, "bound_us": 50.0, "peak_gb_s": 3000.0} | case.holds
    assert Scope(known, BOOK.values).first(_rule(case.rule).gain) is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_without_any_of_its_metrics_it_is_undecided_and_names_them(case: Case) -> None:
    rule = _rule(case.rule)
    assert _holds(rule, {}) is None
    assert rule.lacks(Scope({}, BOOK.values))


def test_every_rule_is_tested() -> None:
    assert {id(_rule(case.rule)) for case in CASES} == {id(rule) for rule in BOOK.rules}


def test_a_predicate_that_fails_decides_whatever_else_is_unknown() -> None:
    assert _holds(_rule("two-pass-traffic"), {"compulsory_bytes": 10.0}) is False
