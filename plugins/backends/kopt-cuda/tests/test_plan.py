"""The header's launch plan, and the parameters of kernels as their declarations have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt_cuda.plan import plan_of
from kopt_cuda.signatures import kernels_of

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")


def test_a_plan_has_its_launches_in_order():
    more = '// [[launch]]\n// kernel = "other"\n// grid = 1\n// block = [32, 2]\n// shared = 64\n// ///'
    plan = plan_of(parse_kernel(SCALE.replace("// ///\nextern", f"{more}\nextern"), "cuda"))
    assert [each.kernel for each in plan.launch] == ["scale", "other"]
    assert plan.launch[0].arguments == ("x", "out", "x.numel", "2.0")
    assert (plan.launch[1].grid, plan.launch[1].block, plan.launch[1].shared) == ((1,), (32, 2), 64)
    assert (plan.launch[1].arguments, plan.launch[1].cluster) == (None, None)


def test_one_launch_may_be_written_at_the_top():
    source = '// /// kopt\n// grid = ["x.numel"]\n// block = 32\n// ///\nextern "C" __global__ void f() {}'
    (launch,) = plan_of(parse_kernel(source, "cuda")).launch
    assert (launch.kernel, launch.grid, launch.block) == ("f", ("x.numel",), (32,))


def test_scratch_has_shape_and_dtype():
    header = '// [scratch.partial]\n// shape = ["cdiv(x.numel, 64)", 2]\n// dtype = "float32"\n'
    plan = plan_of(parse_kernel(SCALE.replace("// [[launch]]", f"{header}// [[launch]]"), "cuda"))
    assert plan.scratch["partial"].shape == ("cdiv(x.numel, 64)", 2)
    assert plan.scratch["partial"].zeroed is False


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("// block = [", "// blocks = [", r"kernel\.cu:8: launch\.0\.blocks: unknown key; known: kernel"),
        ("// grid = [", "// grids = [", "grid"),
        ("// [knobs]", "// shard = 4\n// [knobs]", r"kernel\.cu:3: shard: unknown key; known: entry"),
        ("// [knobs]", "// grid = 4\n// [knobs]", r"grid beside \[\[launch\]\]"),
        ("// [knobs]", '// flags = ["-arch=sm_70"]\n// [knobs]', "flag '-arch=sm_70' is not taken from a header; known"),
        (
            "// [knobs]", '// [scratch.s]\n// shape = [4]\n// dtype = "half"\n// [knobs]',
            r"kernel\.cu:5: .*'half' is no dtype; known: float64",
        ),
        ('"BLOCK"]', '"BLOCK", 1, 1, 1]', "at most 3 items"),
    ],
)  # fmt: skip
def test_a_wrong_header_is_a_parse_error_with_its_line(old, new, said):
    with pytest.raises(CandidateError, match=said) as caught:
        plan_of(parse_kernel(SCALE.replace(old, new), "cuda"))
    assert caught.value.status is Status.PARSE_ERROR


@pytest.mark.parametrize("flag", ["-o/tmp/x", "-ccbin=/tmp/x", "-Xcompiler=-fplugin=x.so", "--run"])
def test_flags_that_reach_beyond_the_kernel_are_refused(flag):
    source = SCALE.replace("// [knobs]", f'// flags = ["{flag}"]\n// [knobs]')
    with pytest.raises(CandidateError, match="is not taken from a header"):
        plan_of(parse_kernel(source, "cuda"))


def test_a_header_without_a_launch_is_told_how_one_looks():
    with pytest.raises(CandidateError, match=r"no launch; write \[\[launch\]\]"):
        plan_of(parse_kernel('extern "C" __global__ void f(float *x) {}', "cuda"))


def parameters(declaration: str, **definitions: str):
    (kernel,) = kernels_of(f'extern "C" __global__ {declaration} {{}}', definitions).values()
    return kernel.parameters


@pytest.mark.parametrize(
    ("written", "type_", "scalar"),
    [
        ("int n", "int", "i"), ("const unsigned n", "unsigned int", "I"), ("long n", "long", "q"),
        ("unsigned long long int n", "unsigned long long", "Q"), ("int64_t n", "long long", "q"),
        ("std::size_t n", "unsigned long", "Q"), ("float", "float", "f"), ("double by", "double", "d"),
        ("bool on", "bool", "?"), ("signed char c", "signed char", "b"), ("long int n", "long", "q"),
        ("unsigned short int n", "unsigned short", "H"), ("uint8_t n", "unsigned char", "B"),
    ],
)  # fmt: skip
def test_values_have_the_width_of_their_c_type(written, type_, scalar):
    (found,) = parameters(f"void f({written})")
    assert (found.type, found.scalar) == (type_, scalar)


@pytest.mark.parametrize(
    ("written", "dtypes", "alignment"),
    [
        ("const float *__restrict__ x", "float32", 1), ("const half* x", "float16", 1),
        ("__nv_bfloat16 *x", "bfloat16", 1), ("int const * x", "int32", 1), ("long long *x", "int64", 1),
        ("double x[]", "float64", 1), ("__half2 *x", "float16", 4), ("float2 *x", "float32", 8),
        ("bool *x", "bool", 1), ("std::int64_t *x", "int64", 1),
    ],
)  # fmt: skip
def test_pointers_say_which_tensors_they_take(written, dtypes, alignment):
    (found,) = parameters(f"void f({written})")
    assert (found.scalar, found.dtypes, found.alignment) == (None, {dtypes}, alignment)


@pytest.mark.parametrize("written", ["const void *x", "uint4 *x", "const float4 *x"])
def test_untyped_loads_take_any_tensor(written):
    (found,) = parameters(f"void f({written})")
    assert {"float16", "bfloat16", "int8"} < found.dtypes


def test_names_for_types_are_followed():
    source = (
        "using element = const float;\ntypedef unsigned int count_t;\n#define REAL half\n"
        'extern "C" __global__ void f(element *x, count_t n, REAL *y, T *z) {}'
    )
    found = kernels_of(source, {"T": "__nv_bfloat16"})["f"].parameters
    assert [each.type for each in found] == ["float", "unsigned int", "__half", "__nv_bfloat16"]


def test_attributes_comments_and_lines():
    source = (
        '// extern "C" __global__ void no(struct s t) {}\n'
        "__global__ void inner(MyType t) {}\n"
        'extern "C" __global__\nvoid __launch_bounds__(256, (1 + 1)) f(\n  int n /* how, many */) {\n}\n'
        'extern "C" {\n__device__ int g(int n) { return n; }\n'
        "__launch_bounds__(32) __global__ void h(void) {}\n}\n"
    )
    found = kernels_of(source)
    assert list(found) == ["f", "h"]
    assert [(each.line, len(each.parameters)) for each in found.values()] == [(3, 1), (9, 0)]


@pytest.mark.parametrize(
    "written", ["MyType t", "float **x", "const __grid_constant__ CUtensorMap m"]
)
def test_a_type_that_cannot_be_passed_is_named_with_its_line(written):
    with pytest.raises(
        CandidateError, match=r"kernel\.cu:1: kernel f: parameter .* use one of"
    ) as caught:
        parameters(f"void f({written})")
    assert caught.value.status is Status.PARSE_ERROR
