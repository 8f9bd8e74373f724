"""The kopt header of a C++ kernel: what it may say, and what is said about mistakes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kopt.errors import CandidateError, KernelFileError
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec, DictValue, NamedValue, ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.binding import BoundTensor, default_arguments, names_of
from kopt.worker.candidate import WorkerContext
from kopt_cpp import CppBackend
from kopt_cpp.binding import c_arguments, check_count, check_required, parameters_of

BODY = '#include <cstdint>\nextern "C" void scale(const float* x, float* out, int64_t n) {\n'
BODY += "    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];\n}\n"


def header(*lines: str) -> str:
    return "\n".join(["// /// kopt", *(f"// {line}" for line in lines), "// ///", BODY])


def build(source: str, folder: Path):
    context = WorkerContext(records.cpu(), "native", ("x",), BuildCache(folder))
    backend = CppBackend(CppBackend.Options())
    return backend.kopt_build(None, parse_kernel(source, "cpp"), context)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['argumets = ["x"]'], "unknown key argumets"),
        (["launch = 3", "grid = 1"], "unknown key grid, launch"),
        (['arguments = "x, out"'], "arguments in the kopt header is 'x, out'; write a list"),
        (['flags = "-O2"'], "flags in the kopt header is '-O2'; write a list"),
        (["arguments = [1, 2]"], "write a list"),
        (["arguments = {x = 1}"], "write a list"),
    ],
)
def test_a_wrong_key_is_named_with_those_that_are_known(tmp_path, lines, words):
    with pytest.raises(CandidateError) as caught:
        build(header(*lines), tmp_path)
    assert caught.value.status is Status.PARSE_ERROR
    assert words in caught.value.detail
    assert "arguments" in caught.value.detail or "flags" in caught.value.detail


@pytest.mark.parametrize(
    "source",
    [
        "// /// kopt\n// entry = \n// ///\n" + BODY,
        '// /// kopt\n// entry = "scale"\n' + BODY,
        "// /// kopt\n// [knobs]\n// N = {default = 3, choices = [1, 2]}\n// ///\n" + BODY,
        BODY.replace('extern "C" ', ""),
    ],
    ids=["no TOML", "not closed", "default is no choice", "no entry"],
)
def test_a_header_that_cannot_be_read_is_a_kernel_file_error(source):
    with pytest.raises(KernelFileError):
        parse_kernel(source, "cpp")


def test_an_entry_that_is_not_exported_is_named(tmp_path):
    with pytest.raises(CandidateError, match="'rescale'") as caught:
        build(header('entry = "rescale"'), tmp_path)
    assert caught.value.status is Status.PARSE_ERROR
    hidden = BODY.replace('extern "C" void', "void")
    with pytest.raises(CandidateError, match=r'extern "C" function \'scale\''):
        build(f'// /// kopt\n// entry = "scale"\n// ///\n{hidden}', tmp_path)


def test_flags_and_knobs_reach_the_compiler(tmp_path):
    source = header('flags = ["-DTWO=2"]', "[knobs]", "N = [5, 6]", "ON = [true, false]")
    guard = "#if TWO != 2 || N != 5 || ON != 1\n#error not defined\n#endif\n"
    assert build(guard + source, tmp_path).build.log == ""
    with pytest.raises(CandidateError, match="not defined"):
        build(guard.replace("N != 5", "N != 6") + source, tmp_path)


# --- arguments ---


class Addresses:
    """Memory in which each segment starts at a round address."""

    def address(self, ref):
        return ref.segment * 1000 + ref.offset


def tensor(segment: int, *shape: int, dtype: str = "float32") -> TensorRef:
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorRef(segment=segment, offset=8, dtype=dtype, shape=shape, strides=strides)


@pytest.fixture
def call() -> CallSpec:
    return CallSpec(
        arguments=(
            NamedValue(name="x", value=tensor(1, 4, 6)),
            NamedValue(name="eps", value=ScalarValue(value=0.5), keyword=True),
            NamedValue(name="flag", value=ScalarValue(value=True)),
            NamedValue(name="mode", value=ScalarValue(value="fast")),
            NamedValue(name="more", value=DictValue(items={})),
        ),
        state={"norm.weight": tensor(2, 6, dtype="float64")},
        outputs=(tensor(3, 4), tensor(4, 6)),
        structure="tuple:2",
    )


def values(call: CallSpec, *expressions: str, **knobs):
    found = c_arguments(list(expressions), names_of(call, Addresses().address), knobs)
    return [(type(item).__name__.removeprefix("c_"), item.value) for item in found]


def test_every_kind_of_argument_has_its_c_type(call):
    assert values(call, "x", "norm_weight", "out", "out0", "out1") == [
        ("void_p", 1008), ("void_p", 2008), ("void_p", 3008), ("void_p", 3008), ("void_p", 4008),
    ]  # fmt: skip
    assert values(call, "x.shape[0]", "x.numel // 5", "norm_weight.itemsize", "flag") == [
        ("long", 4), ("long", 4), ("long", 8), ("long", 1),
    ]  # fmt: skip
    assert values(call, "eps", "eps * 2") == [("double", 0.5), ("double", 1.0)]
    assert values(call, "BLOCK * 2", "cdiv(x.numel, BLOCK)", BLOCK=32) == [
        ("long", 64), ("long", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("y", "no name 'y'"),
        ("x.size", "'x.size'"),
        ("x.shape[7]", "x.shape[7]"),
        ("mode", "neither tensor, integer nor float"),
        ("more", "neither tensor, integer nor float"),
        ("x.shape", "neither tensor, integer nor float"),
        ("__import__('os')", "__import__"),
        ("x +", "x +"),
    ],
)
def test_a_wrong_argument_is_a_parse_error_that_names_it(call, expression, words):
    with pytest.raises(CandidateError) as caught:
        values(call, expression)
    assert caught.value.status is Status.PARSE_ERROR
    assert words in caught.value.detail
    assert "arguments in the kopt header" in caught.value.detail


def test_a_call_that_the_header_rules_out_is_unsupported(call):
    names = {"BLOCK": 8, **names_of(call, Addresses().address)}
    check_required(["x.shape[0] % 4 == 0", "BLOCK >= 8"], names)
    with pytest.raises(CandidateError, match=r"requires x.shape\[1\] % 4 == 0") as caught:
        check_required(["BLOCK == 8", "x.shape[1] % 4 == 0"], names)
    assert caught.value.status is Status.UNSUPPORTED
    with pytest.raises(CandidateError, match="requires in the kopt header") as caught:
        check_required(["z == 0"], names)
    assert caught.value.status is Status.PARSE_ERROR


def test_without_a_header_inputs_state_and_outputs_come_in_order(call):
    assert default_arguments(call) == [
        "x", "eps", "flag", "mode", "more", "norm_weight", "out0", "out1",
    ]  # fmt: skip


def test_a_tensor_has_its_extents_in_expressions():
    seen = BoundTensor((4, 6), (6, 1), "float16", 16)
    assert (seen.shape, seen.ndim, seen.numel, seen.itemsize) == ((4, 6), 2, 24, 2)
    assert seen.stride == (6, 1)


def placed(shape, strides):
    return BoundTensor(shape, strides, "float32", 64)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((4, 6), (6, 1), True), ((4, 6), (1, 4), False), ((4, 6), (7, 1), False),
        ((1, 6), (99, 1), True), ((4, 1), (1, 5), True), ((), (), True), ((0, 6), (1, 1), True),
        ((5,), (2,), False),
    ],
)  # fmt: skip
def test_contiguous_means_that_every_step_is_the_plain_one(shape, strides, contiguous):
    assert placed(shape, strides).contiguous is contiguous


def test_a_tensor_with_gaps_is_refused_unless_a_stride_of_it_is_passed():
    names = {"x": placed((4, 6), (1, 4)), "out": placed((4, 6), (6, 1))}
    with pytest.raises(CandidateError, match="x is not contiguous") as caught:
        c_arguments(["x", "out", "x.numel"], names, {})
    assert caught.value.status is Status.UNSUPPORTED
    assert len(c_arguments(["x", "out", "x.stride[1]"], names, {})) == 3
    assert len(c_arguments(["out", "x.shape[0]"], names, {})) == 2


@pytest.mark.parametrize(
    ("source", "parameters"),
    [
        (BODY, ["const float* x", "float* out", "int64_t n"]),
        ('extern "C" void scale() {}', []),
        ('extern "C" void scale(void) {}', []),
        ('extern "C" int\nscale(\n  A<int, 3> a, // one, or\n  int (*f)(int, int) /* two, */) {}',
         ["A<int, 3> a", "int (*f)(int, int)"]),
        ('extern "C" __attribute__((noinline)) void scale(int n) {}', None),
        ('extern "C" { void scale(int n) {} }', None),
        ('#if A\nextern "C" void scale(int n) {}\n#else\nextern "C" void scale() {}\n#endif', None),
        ('extern "C" void scaled(int n) {}', None),
        ('// extern "C" void scale(int n)\nvoid scale(int n) {}', None),
        ('extern "C" void scale(int n', None),
        ('#define ALL int n, int m\nextern "C" void scale(ALL) {}', None),
        ('extern "C" void scale(float* x, REST) {}', None),
        ('extern "C" void scale(float* x,\n#ifdef LONG\nint n, int m\n#else\nint n\n#endif\n) {}', None),
    ],
)  # fmt: skip
def test_what_a_function_takes_is_read_where_it_is_plain(source, parameters):
    assert parameters_of(source, "scale") == parameters


@pytest.mark.parametrize("given", [["x", "out"], ["x", "out", "n", "n"], []])
def test_another_number_of_arguments_is_told_before_it_runs(given):
    with pytest.raises(CandidateError, match=r"takes 3 parameters \(const float\* x, .* is passed"):
        check_count(BODY, "scale", given)
    check_count(BODY, "scale", ["x", "out", "x.numel"])
    check_count('extern "C" { void scale(int n) {} }', "scale", given)
