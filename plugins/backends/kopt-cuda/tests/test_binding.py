"""A plan in numbers: what a kernel would get, and what is refused before anything is launched."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import TensorRef
from kopt.model.verification import Status
from kopt.worker.binding import names_of
from kopt_cuda.architectures import named
from kopt_cuda.binding import Resolver
from kopt_cuda.limits import check, used_by
from kopt_cuda.plan import plan_of
from kopt_cuda.resources import KernelResources
from kopt_cuda.signatures import kernels_of

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")


def resolver(source, call, **knobs):
    candidate = parse_kernel(source, "cuda").with_values("test", **knobs)
    plan, kernels = plan_of(candidate), kernels_of(source)
    return Resolver(
        source, plan, kernels, candidate.chosen, call,
        lambda ref: 4096 * (1 + ref.segment) + ref.offset,
    )  # fmt: skip


def launches(source, call, **knobs):
    return resolver(source, call, **knobs).launches()


def test_a_launch_has_its_grid_and_its_arguments_in_c_types(calls):
    call = calls.of((calls.tensor((10, 100), segment=1),), x=calls.tensor((10, 100)))
    (launch,) = launches(SCALE, call, BLOCK=256)
    assert (launch.kernel, launch.grid, launch.block) == ("scale", (4, 1, 1), (256, 1, 1))
    assert (launch.shared, launch.cluster) == (0, None)
    wanted = (("P", 4096), ("P", 8192), ("i", 1000), ("f", 2.0))
    assert launch.arguments == tuple(struct.pack(kind, value) for kind, value in wanted)


def test_without_arguments_a_kernel_gets_inputs_state_and_outputs(calls):
    source = (
        '// /// kopt\n// grid = 1\n// block = 32\n// ///\n'
        'extern "C" __global__ void f(float *x, double by, half *w_0, float *a, float *b) {}'
    )  # fmt: skip
    outputs = (calls.tensor((4,), segment=1), calls.tensor((4,), segment=2))
    call = calls.of(outputs, x=calls.tensor((4,)), by=0.5)
    call = call.model_copy(update={"state": {"w.0": calls.tensor((2,), "float16", segment=3)}})
    (launch,) = launches(source, call)
    wanted = (("P", 4096), ("d", 0.5), ("P", 4 * 4096), ("P", 2 * 4096), ("P", 3 * 4096))
    assert launch.arguments == tuple(struct.pack(kind, value) for kind, value in wanted)


def test_scratch_is_a_tensor_of_the_plan(calls):
    header = '// [scratch.part]\n// shape = ["cdiv(x.numel, 64)", 2]\n// dtype = "float32"\n// zeroed = true\n'
    source = SCALE.replace("// [[launch]]", f"{header}// [[launch]]").replace('"out"', '"part"')
    made = resolver(source, calls.vectors())
    assert made.scratch() == {"part": ((16, 2), "float32", True)}
    made.add_scratch("part", (16, 2), "float32", 1 << 20)
    assert made.launches()[0].arguments[1] == struct.pack("P", 1 << 20)


def test_scratch_does_not_take_the_name_of_an_argument(calls):
    header = '// [scratch.x]\n// shape = [4]\n// dtype = "float32"\n'
    made = resolver(SCALE.replace("// [[launch]]", f"{header}// [[launch]]"), calls.vectors())
    with pytest.raises(CandidateError, match="name is taken"):
        made.scratch()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"out", ', "", r"kernel\.cu:9: launch of scale: 3 arguments .* for 4 parameters .*line 11"),
        ('"out"', '"ouch"', r"kernel\.cu:9: .*no name 'ouch' \(known: .*out"),
        ('"2.0"', '"x"', r"it is a float32 tensor, and parameter by \(line 11\) takes float by value"),
        ('"out"', '"x.numel"', r"is 1000, and parameter out \(line 11\) points to float; name a tensor"),
        ('"x.numel", "2', '"x.numel / 3", "2', "is 333.3.*takes int; declare it float"),
        ('"x.numel", "2', '"x.numel * 4000000", "2', "takes int, which does not hold it; use a wider"),
        ('"2.0"', '"1e300"', "takes float, which does not hold it"),
        ("const float *x", "const half *x", "float32 tensor, and .* points to __half, which holds float16"),
        ('["BLOCK"]', '["BLOCK / 2"]', r"kernel\.cu:8: launch of scale: block: 'BLOCK / 2' is 64.0, no int"),
        ('["cdiv(', '["ceil(', r"kernel\.cu:7: launch of scale: grid: .*not allowed here"),
        ('// kernel = "scale"', '// kernel = "scales"', r"kernel\.cu:6: .*no extern \"C\" .*'scales'; it defines: scale"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_kernel_is_a_parse_error_with_its_line(old, new, said, calls):
    with pytest.raises(CandidateError, match=said) as caught:
        launches(SCALE.replace(old, new, 1), calls.vectors())
    assert caught.value.status is Status.PARSE_ERROR


def test_the_line_is_that_of_the_launch_at_fault(calls):
    second = SCALE.split("// [knobs]\n// BLOCK = [128, 256]\n")[1].split("// ///")[0]
    source = SCALE.replace("// ///\nextern", second.replace('"2.0"', '"three"') + "// ///\nextern")
    with pytest.raises(CandidateError, match=r"kernel\.cu:14: .*no name 'three'"):
        launches(source, calls.vectors())


def test_a_tensor_that_is_not_contiguous_needs_its_strides(calls):
    call = calls.of((calls.tensor((4, 4)),), x=calls.tensor((4, 4), strides=(1, 4)))
    with pytest.raises(CandidateError, match=r"not contiguous.*x\.stride\[0\]") as caught:
        launches(SCALE, call)
    assert caught.value.status is Status.UNSUPPORTED
    assert launches(SCALE.replace('"x.numel", "2', '"x.stride[1]", "2'), call)


def test_a_misaligned_tensor_is_refused_for_a_vector_pointer(calls):
    source = SCALE.replace("const float *x", "const float4 *x")
    assert launches(source, calls.vectors())
    call = calls.of((calls.tensor((8,)),), x=calls.tensor((8,), offset=4))
    with pytest.raises(CandidateError, match="no multiple of 16 bytes") as caught:
        launches(source, call)
    assert caught.value.status is Status.UNSUPPORTED


def used(launch, **figures):
    given = {
        "name": "scale", "architecture": "sm_90", "registers": 32, "spill_bytes": 0,
        "stack_bytes": 0, "static_shared_bytes": 1024, "constant_bytes": 0, "shared_bytes": 1024,
    }  # fmt: skip
    return used_by(KernelResources(**given | figures), launch)


@pytest.mark.parametrize(
    ("old", "new", "figures", "said", "status"),
    [
        ("cdiv(x.numel, BLOCK)", "x.numel // 1024", {}, r"kernel\.cu:7: .*grid is \[0, 1, 1\]", "launch-failed"),
        ('["cdiv(x.numel, BLOCK)"]', "[1, 65536]", {}, "at most", "launch-failed"),
        ('block = ["BLOCK"]', "block = [64, 32]", {}, "2048 threads, at most 1024", "launch-failed"),
        ('block = ["BLOCK"]', "block = [1, 1, 65]", {}, "at most", "launch-failed"),
        ('["BLOCK"]', '["BLOCK"]\n// cluster = 3', {}, r"kernel\.cu:9: .*no multiple of cluster", "launch-failed"),
        ('["BLOCK"]', '["BLOCK"]\n// cluster = 32', {}, "1 to 16 blocks", "launch-failed"),
        ('["BLOCK"]', '["BLOCK"]\n// shared = "232448 - 1023"', {}, r"kernel\.cu:9: .*needs 232449 bytes of shared memory \(1024 static, 231425 dynamic\), sm_90 gives 232448", "compile-error"),
        ('["BLOCK"]', '["BLOCK"]\n// shared = -4', {}, "shared is -4", "compile-error"),
        ('block = ["BLOCK"]', "block = 1024", {"registers": 72}, r"73728 registers.*__launch_bounds__\(1024\)", "compile-error"),
    ],
)  # fmt: skip
def test_what_the_gpu_would_not_start_is_said_before(old, new, figures, said, status, calls):
    source = SCALE.replace(old, new, 1)
    (launch,) = launches(source, calls.vectors())
    with pytest.raises(CandidateError, match=said) as caught:
        check(source, 0, launch, used(launch, **figures), named("sm_90"))
    assert caught.value.status == status


def test_what_just_fits_passes(calls):
    source = SCALE.replace('["BLOCK"]', '["BLOCK"]\n// shared = "232448 - 1024"\n// cluster = 8', 1)
    (launch,) = launches(source, calls.vectors(128 * 8))
    found = used(launch, registers=255)
    check(source, 0, launch, found, named("sm_90a"))
    assert (found.shared_bytes, found.threads, found.cluster) == (232448, 128, (8, 1, 1))


def test_a_reference_is_bound_where_it_lies(calls):
    ref = TensorRef(segment=2, offset=64, dtype="float32", shape=(3,), strides=(1,))
    names = names_of(calls.of((), x=ref, flag=True), lambda each: each.offset)
    assert (names["x"].address, names["flag"]) == (64, True)


def test_a_call_that_the_header_rules_out_is_unsupported_with_its_line(calls):
    def check(condition, n):
        source = SCALE.replace("// [knobs]", f'// requires = "{condition}"\n// [knobs]')
        resolver(source, calls.vectors(n), BLOCK=128).check_required()

    check("x.numel % BLOCK == 0", 1024)
    with pytest.raises(CandidateError, match=r"kernel\.cu:3: it requires x\.numel") as caught:
        check("x.numel % BLOCK == 0", 1000)
    assert caught.value.status is Status.UNSUPPORTED
    with pytest.raises(CandidateError, match=r"kernel\.cu:3: requires: .*no name 'y'") as caught:
        check("y > 1", 1024)
    assert caught.value.status is Status.PARSE_ERROR
