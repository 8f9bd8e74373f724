"""Work and bound of a workload, against values computed by hand."""

from __future__ import annotations

import pytest

from kopt.model.device import Peaks
from kopt.model.problem import ArgumentInfo, OperatorCall, TensorInfo, WorkloadSignature
from kopt.model.work import Bound, MatrixFlops, Work, bound_ms, per_output, work_of

H100 = Peaks(
    copy_gb_s=3000, read_gb_s=3100, write_gb_s=3200, fp32_tflops=51, tf32_tflops=410,
    bf16_tflops=800, fp16_tflops=780, fp8_tflops=1400,
)  # fmt: skip


def tensor(name, *shape, dtype="float32"):
    return TensorInfo(name=name, dtype=dtype, shape=shape)


def call(name, inputs, outputs, **more):
    """An operator; outputs by name and shape."""
    return OperatorCall(
        name=f"aten.{name}", inputs=tuple(inputs.split()), outputs=tuple(outputs),
        shapes=tuple(outputs.values()), **more,
    )  # fmt: skip


def workload(arguments, outputs, *trace, others=()):
    infos = [ArgumentInfo(name=t.name, kind="tensor", tensor=t) for t in arguments]
    infos += [ArgumentInfo(name=name, kind="other") for name in others]
    size = {"float32": 4, "float16": 2, "int64": 8}
    return WorkloadSignature(
        arguments=tuple(infos), outputs=tuple(outputs), trace=trace,
        compulsory_bytes=sum(t.elements * size[t.dtype] for t in [*arguments, *outputs]),
    )  # fmt: skip


LINEAR = workload(
    [tensor("x", 32, 64), tensor("w", 16, 64), tensor("b", 16)],
    [tensor("out0", 32, 16)],
    call("t.default", "w", {"%3": (64, 16)}),
    call("addmm.default", "b x %3", {"%4": (32, 16)}, flops=2 * 32 * 64 * 16, dtype="float32"),
    call("relu.default", "%4", {"%5": (32, 16)}),
)


def test_a_linear_layer():
    work = work_of(LINEAR)
    assert work == Work(
        compulsory_bytes=4 * (32 * 64 + 16 * 64 + 16 + 32 * 16),
        matrix=(MatrixFlops(kind="product", dtype="float32", flops=65536),),
        vector_ops=32 * 16,  # of the relu; the transposition only looks
    )
    assert work.matrix_flops == 65536
    assert work.intensity == 65536 / 14400


def test_operations_are_told_apart_by_kind_and_dtype():
    work = work_of(
        workload(
            [tensor("x", 8, 8), tensor("k", 8, 8)], [tensor("out0", 8, 8)],
            call("convolution.default", "x k", {"%2": (8, 8)}, flops=100, dtype="float32"),
            call("mm.default", "%2 %2", {"%3": (8, 8)}, flops=10, dtype="float32"),
            call("mm.default", "%3 %3", {"%4": (8, 8)}, flops=7, dtype="float16"),
            call("mm.default", "%4 %4", {"%5": (8, 8)}, flops=3, dtype="float16"),
        )
    )  # fmt: skip
    assert [(p.kind, p.dtype, p.flops) for p in work.matrix] == [
        ("convolution", "float32", 100), ("product", "float16", 10), ("product", "float32", 10),
    ]  # fmt: skip
    assert work.vector_ops == 0


def test_a_reduction_counts_what_it_reduces_and_an_expansion_what_it_produces():
    reduced = workload(
        [tensor("x", 10, 6), tensor("y", 6)], [tensor("out0", 10, 6)],
        call("sum.dim_IntList", "x", {"%2": (10, 1)}),
        call("add.Tensor", "%2 y", {"%3": (10, 6)}),
        call("empty.memory_format", "", {"%4": (1000,)}),
    )  # fmt: skip
    assert work_of(reduced).vector_ops == 60 + 60


# --- what is needed ---


def test_what_no_output_needs_is_not_work():
    unused = workload(
        [tensor("x", 10), tensor("counter", dtype="int64")], [tensor("out0", 10)],
        call("exp.default", "x", {"%2": (10,)}),
        call("mm.default", "x x", {"%3": (99,)}, flops=99, dtype="float32"),
        call("neg.default", "%2", {"%4": (10,)}),
    )  # fmt: skip
    assert unused.compulsory_bytes == 88
    assert work_of(unused) == Work(compulsory_bytes=80, vector_ops=20)


def test_of_a_table_only_what_is_looked_up_is_read():
    table, rows = tensor("table", 1000, 8), tensor("rows", 5, dtype="int64")
    looked = workload(
        [table, rows], [tensor("out0", 5, 8)],
        call("embedding.default", "table rows", {"%2": (5, 8)}),
    )  # fmt: skip
    assert work_of(looked).compulsory_bytes == 4 * 40 + 8 * 5 + 4 * 40
    often = workload(
        [tensor("table", 3, 8), rows], [tensor("out0", 5, 8)],
        call("embedding.default", "table rows", {"%2": (5, 8)}),
    )  # fmt: skip
    assert work_of(often).compulsory_bytes == 4 * 24 + 8 * 5 + 4 * 40


def test_of_a_slice_only_its_part_is_read_through_other_views_too():
    sliced = workload(
        [tensor("x", 100, 4)], [tensor("out0", 10)],
        call("transpose.int", "x", {"%1": (4, 100)}),
        call("slice.Tensor", "%1", {"%2": (4, 10)}),
        call("sum.dim_IntList", "%2", {"%3": (10,)}),
    )  # fmt: skip
    assert work_of(sliced).compulsory_bytes == 4 * 40 + 4 * 10
    again = workload(
        [tensor("x", 100, 4)], [tensor("out0", 4, 10)],
        call("slice.Tensor", "x", {"%1": (10, 4)}),
        call("exp.default", "x", {"%2": (100, 4)}),
        call("add.Tensor", "%1 %2", {"%3": (4, 10)}),
    )  # fmt: skip
    assert work_of(again).compulsory_bytes == 4 * 400 + 4 * 40  # once, not 410 times


@pytest.mark.parametrize("result", ["%3", "%9"])
def test_what_is_changed_in_place_through_a_view_is_needed(result):
    filled = workload(
        [tensor("x", 4), tensor("y", 8)], [tensor("out0", 8)],
        call("clone.default", "y", {"%2": (8,)}),
        call("slice.Tensor", "%2", {"%3": (4,)}),
        call("copy_.default", "%3 x", {result: (4,)}),
        call("view.default", "%2", {"%4": (8,)}),
    )  # fmt: skip
    assert work_of(filled).compulsory_bytes == 4 * (4 + 8 + 8)
    assert work_of(filled).vector_ops == 8 + 4


def test_without_a_trace_bytes_are_those_of_all_arguments_and_outputs():
    bare = workload([tensor("x", 10), tensor("y", 3)], [tensor("out0", 10)])
    assert work_of(bare) == Work(compulsory_bytes=4 * 23)
    assert per_output(bare) == {}
    changed_in_place = workload([tensor("x", 10)], [])
    assert work_of(changed_in_place) == Work(compulsory_bytes=40)


def test_tensors_in_a_list_have_no_name_so_that_all_bytes_count():
    listed = workload(
        [tensor("x", 10), tensor("y", 3)], [tensor("out0", 10)],
        call("add.Tensor", "x %7", {"%8": (10,)}), others=("many",),
    )  # fmt: skip
    assert work_of(listed) == Work(compulsory_bytes=4 * 23, vector_ops=10)
    assert per_output(listed) == {}


# --- outputs alone ---

TWO = workload(
    [tensor("x", 6, 10), tensor("w", 10, 10), tensor("unread", 7)],
    [tensor("out0", 6, 10), tensor("out1", 6)],
    call("mm.default", "x w", {"out0": (6, 10)}, flops=1200, dtype="float32"),
    call("sum.dim_IntList", "x", {"out1": (6,)}),
)


def test_each_output_has_what_it_needs():
    assert per_output(TWO) == {
        "out0": Work(
            compulsory_bytes=4 * (60 + 100 + 60),
            matrix=(MatrixFlops(kind="product", dtype="float32", flops=1200),),
        ),
        "out1": Work(compulsory_bytes=4 * (60 + 6), vector_ops=60),
    }
    assert work_of(TWO).compulsory_bytes == 4 * (60 + 100 + 60 + 6)


def test_the_only_output_is_found_without_its_name():
    assert per_output(LINEAR) == {"out0": work_of(LINEAR)}


def test_an_output_that_is_an_argument_is_left_out_and_all_bytes_count():
    returned = workload(
        [tensor("x", 6), tensor("y", 6)], [tensor("out0", 6), tensor("out1", 6)],
        call("exp.default", "x", {"out1": (6,)}),
    )  # fmt: skip
    assert per_output(returned) == {"out1": Work(compulsory_bytes=48, vector_ops=6)}
    assert work_of(returned).compulsory_bytes == 4 * 24


@pytest.mark.parametrize("result", ["x", "%2"])
@pytest.mark.parametrize(("operator", "inputs"), [("add_.Tensor", "x y"), ("neg.out", "y x")])
def test_an_argument_that_is_changed_in_place_is_an_output(operator, inputs, result):
    mutated = workload(
        [tensor("x", 6), tensor("y", 6)], [],
        call(operator, inputs, {result: (6,)}),
    )  # fmt: skip
    assert per_output(mutated) == {"x": Work(compulsory_bytes=4 * 18, vector_ops=6)}
    assert work_of(mutated).compulsory_bytes == 4 * 18


# --- the bound ---


def work(nbytes, *parts):
    matrix = tuple(MatrixFlops(kind=kind, dtype=dtype, flops=flops) for kind, dtype, flops in parts)
    return Work(compulsory_bytes=nbytes, matrix=matrix)


def test_bytes_go_at_the_best_bandwidth():
    bound = bound_ms(work(32 * 10**9), H100)
    assert bound == Bound(memory_ms=10.0, compute_ms=0.0, total_ms=10.0, limited_by="memory")


PRODUCT = work(3_200_000, ("product", "float32", 410 * 10**9))
CONVOLUTION = work(3_200_000, ("convolution", "float32", 410 * 10**9))


@pytest.mark.parametrize(
    ("problem", "precision", "compute_ms"),
    [
        (PRODUCT, "reference", 410 / 260),  # three float16 products: faster than 51 or 410 / 3
        (PRODUCT, "strict", 410 / 260),
        (PRODUCT, "tf32", 1.0),
        (CONVOLUTION, "reference", 1.0),  # PyTorch's default
        (CONVOLUTION, "strict", 410 / 260),
        (CONVOLUTION, "tf32", 1.0),
    ],
)
def test_float32_goes_by_what_the_problem_allows(problem, precision, compute_ms):
    bound = bound_ms(problem, H100, precision)
    assert bound.compute_ms == pytest.approx(compute_ms)
    assert bound.total_ms == bound.compute_ms
    assert bound.memory_ms == pytest.approx(0.001)
    assert bound.limited_by == "compute"


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({"tf32_tflops": 80}, 60),
        ({"tf32_tflops": 80, "fp16_tflops": 160}, 60),
        ({"tf32_tflops": 240, "fp16_tflops": 210}, 80),
        ({"fp16_tflops": 300}, 100),
    ],
)
def test_the_fastest_units_are_used_that_are_as_accurate_as_float32(rates, best):
    peaks = Peaks(copy_gb_s=800, fp32_tflops=60, **rates)
    assert bound_ms(PRODUCT, peaks).compute_ms == pytest.approx(410 / best)


def test_a_device_without_tf32_has_fp32_alone():
    cpu = Peaks(copy_gb_s=20, fp32_tflops=0.41)
    assert bound_ms(CONVOLUTION, cpu).compute_ms == pytest.approx(1000.0)


def test_parts_follow_one_another_each_at_its_rate():
    mixed = work(
        0, ("product", "bfloat16", 800 * 10**9), ("product", "float16", 780 * 10**9),
        ("product", "float8_e4m3fn", 1400 * 10**9),
    )  # fmt: skip
    assert bound_ms(mixed, H100).compute_ms == pytest.approx(3.0)


def test_a_cpu_without_units_for_bfloat16_computes_it_in_float32():
    slow = Peaks(copy_gb_s=20, fp32_tflops=0.4, bf16_tflops=0.1)
    assert bound_ms(work(0, ("product", "bfloat16", 4 * 10**9)), slow).compute_ms == pytest.approx(
        10
    )


@pytest.mark.parametrize(
    ("part", "missing"),
    [
        (("product", "float64", 1), {}),
        (("product", "int32", 1), {}),
        (("product", "float32", 1), {"fp32_tflops": None}),
        (("convolution", "bfloat16", 1), {"bf16_tflops": None}),
        (("product", "float16", 1), {"fp16_tflops": None}),
        (("product", "float8_e5m2", 1), {"fp8_tflops": None}),
    ],
)
def test_a_rate_that_was_not_measured_is_not_guessed(part, missing):
    bound = bound_ms(work(3_200_000, part), H100.model_copy(update=missing))
    assert bound == Bound(memory_ms=0.001, compute_ms=None, total_ms=None, limited_by=None)


def test_without_a_bandwidth_there_is_no_bound():
    bound = bound_ms(PRODUCT, Peaks(fp32_tflops=41))
    assert bound == Bound(memory_ms=None, compute_ms=10.0, total_ms=None, limited_by=None)


def test_nothing_to_do_has_no_intensity():
    assert Work(compulsory_bytes=0).intensity is None
