from __future__ import annotations

import pytest

from kopt.model.diagnosis import KernelProfile, Profile, metrics_of
from kopt_roofline.merging import merge, over_kernels, short_name


def _profile(profiler: str, *kernels: tuple[str, dict[str, float]], **call: float) -> Profile:
    made = tuple(KernelProfile(name=name, metrics=metrics_of(values)) for name, values in kernels)
    return Profile(profiler=profiler, candidate="c", metrics=metrics_of(call), kernels=made)


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("row_sum", "row_sum"),
        ("row_sum(const float *, float *, int)", "row_sum"),
        ("_Z7row_sumPKfPfi", "row_sum"),
        ("void ns::row_sum<float, (int)4>(float const*, float*)", "row_sum"),
        ("_ZN2ns7row_sumIfLi4EEEvPKT_PS1_", "row_sum"),
        ("void (anonymous namespace)::row_sum<3>(float*)", "row_sum"),
        ("_ZN12_GLOBAL__N_17row_sumEPf", "row_sum"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_Zebra", "_Zebra"),
        ("", ""),
    ],
)
def test_a_kernel_is_named_alike_in_all_spellings(spelt: str, name: str) -> None:
    assert short_name(spelt) == name


def test_the_preferred_profiler_has_the_say_whatever_the_order() -> None:
    ncu = _profile("ncu", ("k", {"grid_blocks": 1}), latency_us=1)
    trace = _profile("torchprof", ("k", {"grid_blocks": 2, "block_threads": 2}), latency_us=2)
    code = _profile("static", ("k", {"block_threads": 3, "spill_bytes": 3}), call_us=3)
    core = _profile("kopt", latency_us=4, call_us=4, bound_us=4)
    other = _profile("mine", ("k", {"spill_bytes": 5, "ipc": 5}), bound_us=5)
    merged = merge([other, core, code, trace, ncu])
    assert merged == merge([ncu, trace, code, core, other])
    assert merged.call == {"latency_us": 1, "call_us": 3, "bound_us": 4, "kernel_launches": 1}
    assert [kernel.metrics for kernel in merged.kernels] == [
        {"grid_blocks": 1, "block_threads": 2, "spill_bytes": 3, "ipc": 5}
    ]


def test_kernels_are_matched_by_name_before_order() -> None:
    ncu = _profile("ncu", ("void b(float*)", {"ipc": 1}), ("void a(float*)", {"ipc": 2}))
    code = _profile("static", ("_Z1aPf", {"spill_bytes": 20}), ("_Z1bPf", {"spill_bytes": 10}))
    spills = [kernel.metrics["spill_bytes"] for kernel in merge([ncu, code]).kernels]
    assert spills == [10, 20]


def test_kernels_whose_names_differ_are_matched_by_order_where_counts_agree() -> None:
    ncu = _profile("ncu", ("a", {"ipc": 1}), ("b", {"ipc": 2}))
    trace = _profile("torchprof", ("p", {"duration_us": 5}), ("q", {"duration_us": 6}))
    merged = merge([ncu, trace])
    assert [k.metrics["duration_us"] for k in merged.kernels] == [5, 6]
    assert [k.name for k in merged.kernels] == ["a", "b"]


def test_what_matches_nothing_stays_apart_if_it_ran_and_is_left_out_if_not() -> None:
    ncu = _profile("ncu", ("a", {"duration_us": 1}))
    trace = _profile("torchprof", ("a", {"duration_us": 2}), ("late", {"duration_us": 3}))
    code = _profile("static", ("never_called", {"spill_bytes": 4}), ("other", {"spill_bytes": 8}))
    assert [kernel.name for kernel in merge([ncu, trace, code]).kernels] == ["a", "late"]
    assert [kernel.name for kernel in merge([code]).kernels] == ["never_called", "other"]
    assert merge([trace, code]).call == {"kernel_launches": 2}
    assert merge([code]).call == {}


def test_one_entry_of_the_code_stands_for_each_launch() -> None:
    ncu = _profile("ncu", ("k", {"grid_blocks": 1}), ("k", {"grid_blocks": 2}))
    code = _profile("static", ("k", {"spill_bytes": 4}))
    assert [kernel.metrics["spill_bytes"] for kernel in merge([ncu, code]).kernels] == [4, 4]


def test_launches_alike_are_one_with_the_longest_as_its_face() -> None:
    same = {"grid_blocks": 1.0, "block_threads": 2.0}
    ncu = _profile(
        "ncu",
        ("k", same | {"duration_us": 1, "instructions": 10, "ipc": 1}),
        ("k", same | {"duration_us": 3, "instructions": 10, "ipc": 2}),
        ("k", same | {"grid_blocks": 9, "duration_us": 4, "instructions": 5, "ipc": 4}),
    )
    first, second = merge([ncu]).kernels
    assert (first.launches, first.share, first.metrics["duration_us"]) == (2, 0.5, 3)
    assert (second.launches, second.share) == (1, 0.5)
    whole = over_kernels([first, second])
    assert whole["instructions"] == 25
    assert whole["ipc"] == pytest.approx(3)


def test_what_perf_counts_is_of_the_call_however_many_functions_the_code_has() -> None:
    code = _profile(
        "static",
        ("scale", {"static_scalar_float_instructions": 1, "static_vector_instructions": 0}),
        (
            "scale._omp_fn.0",
            {"static_scalar_float_instructions": 2, "static_vector_instructions": 9},
        ),
    )
    perf = _profile("perf", cpu_instructions_per_cycle=1.5, cpu_task_us=70)
    merged = merge([perf, code])
    assert merged.call == {"cpu_instructions_per_cycle": 1.5, "cpu_task_us": 70}
    whole = over_kernels(merged.kernels)
    assert whole["static_vector_instructions"] == 9
    assert whole["static_scalar_float_instructions"] == 3


def test_shares_are_equal_where_no_time_is_known() -> None:
    code = _profile("static", ("a", {"spill_bytes": 4}), ("b", {"spill_bytes": 8}))
    assert [kernel.share for kernel in merge([code]).kernels] == [0.5, 0.5]
    assert merge([]).kernels == []
    assert over_kernels([]) == {}
