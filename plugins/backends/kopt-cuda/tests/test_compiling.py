"""Cubins without a GPU: architectures, figures, errors in the compiler's words, and the cache."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")
EXAMPLES = Path(__file__).parents[4] / "examples"
CLUSTER = EXAMPLES / "cuda-cluster" / "cluster_softmax.cu"
FILES = sorted(EXAMPLES.glob("cuda-*/*.cu"))
COMPILERS = ["nvrtc", "nvcc"]
SPILLING = """\
// /// kopt
// grid = 1
// block = 1024
// ///
extern "C" __global__ void __launch_bounds__(1024) spill(float *x) {
    float a[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) a[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 128; ++i) x[i * 1024 + threadIdx.x] = a[i] * a[127 - i] + a[(i * 7) % 128];
}
"""


def call_for(name: str, calls):
    if name == "cluster_softmax.cu":
        return calls.of((calls.tensor((64, 65536)),), x=calls.tensor((64, 65536)))
    square = calls.tensor((8192, 8192), "float16")
    weight = {"weight": calls.tensor((8192,), "float16")} if name == "rms_norm.cu" else {}
    return calls.of((square,), x=square, **weight)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kernel_compiles_for_each_architecture(build, calls, path, architecture, compiler):
    if path.stem == "cluster_softmax" and architecture == "sm_80":
        pytest.skip("sm_80 has no clusters")
    executable = build(path, architecture, compiler=compiler)
    (kernel,) = executable.ahead_of_time(call_for(path.name, calls))
    assert (kernel.name, kernel.architecture) == (path.stem, architecture)
    assert 16 <= kernel.registers <= 128
    assert (kernel.spill_bytes, kernel.stack_bytes, kernel.limits_exceeded) == (0, 0, ())
    assert kernel.threads == 512
    assert executable.timeable is False
    assert executable.build.log == ""
    assert executable.build.resources["kernels"] == [kernel.to_json()]


def test_the_readmes_kernel_compiles(build, calls):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```cuda\n(.*?)```", readme, re.S)
    assert blocks
    for block in blocks:
        (kernel,) = build(block).ahead_of_time(calls.vectors())
        assert kernel.grid == (4, 1, 1)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_cluster_kernel_counts_static_and_dynamic_shared_memory(build, calls, compiler):
    executable = build(CLUSTER, compiler=compiler)
    (kernel,) = executable.ahead_of_time(call_for("cluster_softmax.cu", calls))
    assert kernel.cluster == (4, 1, 1)
    assert kernel.grid == (256, 1, 1)
    assert kernel.shared_bytes == kernel.static_shared_bytes + 65536
    assert kernel.static_shared_bytes >= 18 * 4


def test_clusters_are_refused_where_there_are_none(build):
    lines = CLUSTER.read_text(encoding="utf-8").splitlines()
    line = lines.index('// cluster = ["BLOCKS"]') + 1
    wanted = rf"kernel\.cu:{line}: sm_80 has no thread-block"
    with pytest.raises(CandidateError, match=wanted) as caught:
        build(CLUSTER, "sm_80")
    assert caught.value.status is Status.UNSUPPORTED


@pytest.mark.parametrize("compiler", COMPILERS)
def test_spills_are_counted(build, compiler, calls):
    (kernel,) = build(SPILLING, compiler=compiler).ahead_of_time(
        calls.of((), x=calls.tensor((1 << 17,)))
    )
    assert kernel.registers == 64
    assert kernel.spill_bytes > 100


def test_too_much_dynamic_shared_memory_is_an_error_before_the_launch(build, calls):
    source = SCALE.replace('["BLOCK"]', '["BLOCK"]\n// shared = "BLOCK * 4 * 1024"', 1)
    with pytest.raises(CandidateError, match=r"524288 bytes of shared memory.*sm_90 gives 232448"):
        build(source).ahead_of_time(calls.vectors())


@pytest.mark.parametrize("compiler", COMPILERS)
def test_too_much_static_shared_memory_is_a_compile_error(build, compiler):
    source = SCALE.replace(
        "int at =", "__shared__ float a[16000]; a[n] = x[0]; out[0] = a[n - 1];\nint at ="
    )
    with pytest.raises(
        CandidateError, match=r"scale has 64000 bytes of static.*extern __shared__"
    ) as caught:
        build(source, compiler=compiler)
    assert caught.value.status is Status.COMPILE_ERROR


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("by * x[at]", "by * y[at]", r'kernel\.cu:13: error: identifier "y" is undefined'),
        ("by * x[at];", "by * x[at]", r"kernel\.cu:1[34]: error: expected a .;."),
    ],
)
def test_an_error_has_the_line_of_the_source(build, compiler, old, new, said):
    with pytest.raises(CandidateError, match=said) as caught:
        build(SCALE.replace(old, new), compiler=compiler)
    assert caught.value.status is Status.COMPILE_ERROR


@pytest.mark.parametrize("compiler", ["nvrtc"])
def test_a_missing_header_is_told_with_what_to_do(build, compiler):
    with pytest.raises(
        CandidateError, match=r"no folder has nowhere\.h: name its folder in the option .include"
    ):
        build(f'#include "nowhere.h"\n{SCALE}', compiler=compiler)


def test_an_architecture_that_the_compiler_lacks(build):
    with pytest.raises(CandidateError, match="no limits are known for 'sm_999'") as caught:
        build(SCALE, "sm_999")
    assert caught.value.status is Status.UNSUPPORTED


@pytest.mark.parametrize("compiler", COMPILERS)
def test_hopper_instructions_are_compiled_for_sm_90a(build, compiler):
    source = SCALE.replace("int at", 'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");\nint at')
    source = source.replace("void scale", "void __launch_bounds__(256, 1) scale")
    plain, special = (build(text, compiler=compiler) for text in (SCALE, source))
    assert [each.build.resources["kernels"][0]["architecture"] for each in (plain, special)] == [
        "sm_90", "sm_90a",
    ]  # fmt: skip
    with pytest.raises(CandidateError, match="setmaxnreg"):
        build(
            source.replace("// [knobs]", "// architecture_specific = false\n// [knobs]"),
            compiler=compiler,
        )


@pytest.mark.parametrize("compiler", COMPILERS)
def test_flags_reach_the_compiler(build, compiler):
    source = SCALE.replace("by * x[at]", "by / x[at]")
    fast = source.replace("// [knobs]", '// flags = ["--use_fast_math"]\n// [knobs]')
    exact, quick, same = (
        build(source, compiler=compiler), build(fast, compiler=compiler),
        build(source, compiler=compiler, flags=("--use_fast_math",)),
    )  # fmt: skip
    assert quick.build.resources["binary_bytes"] < exact.build.resources["binary_bytes"]
    assert quick.build.binary_id == same.build.binary_id


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_source_may_be_of_a_newer_standard(build, compiler):
    source = SCALE.replace('extern "C"', 'static_assert(__cplusplus == 202002L);\nextern "C"')
    with pytest.raises(CandidateError, match="static assertion failed"):
        build(source, compiler=compiler)
    newer = source.replace("// [knobs]", '// flags = ["--std=c++20"]\n// [knobs]')
    assert build(newer, compiler=compiler).build.binary_id


@pytest.mark.parametrize("compiler", COMPILERS)
def test_definitions_are_the_preprocessors_and_nobody_elses(build, compiler, tmp_path):
    mark = tmp_path / "mark"
    flags = f'// flags = ["-DBY=3", "-DON", "-DODD=$(touch {mark}) `touch {mark}`; touch {mark}"]\n'
    source = SCALE.replace("// [knobs]", f"{flags}// [knobs]").replace("by * x", "BY * ON * x")
    same = SCALE.replace("by * x", "3 * 1 * x")
    made = [build(text, compiler=compiler).build.binary_id for text in (source, same)]
    assert made[0] == made[1]
    assert not mark.exists()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_warning_is_kept_in_the_log(build, compiler):
    executable = build(SCALE.replace("int at", "int unused_one = 1; int at"), compiler=compiler)
    assert "kernel.cu:12: warning" in executable.build.log
    assert "unused_one" in executable.build.log


def test_standard_types_need_no_folders(build):
    source = SCALE.replace('extern "C"', '#include <cstdint>\n#include <climits>\nextern "C"')
    source = source.replace("int n", "std_n n").replace(
        "#include <cstdint>", "#include <cstdint>\nusing std_n = int64_t;"
    )
    assert build(source).build.binary_id


@pytest.mark.parametrize(
    "header", ["cuda_pipeline.h", "cuda_awbarrier.h", "cuda/std/cstdint", "mma.h"]
)
@pytest.mark.parametrize("first", ["standard", "cuda"])
def test_standard_types_are_those_of_cudas_headers(build, header, first):
    includes = ["#include <cstdint>", f"#include <{header}>"]
    lines = "\n".join(includes if first == "standard" else reversed(includes))
    source = SCALE.replace('extern "C"', f'{lines}\nextern "C"')
    assert build(source).build.binary_id


def test_a_build_is_reused_until_an_include_changes(build, tmp_path):
    folder = tmp_path / "headers"
    (folder / "deep").mkdir(parents=True)
    (folder / "factor.h").write_text('#include "deep/value.h"\n')
    (folder / "deep" / "value.h").write_text("#define FACTOR 2\n")
    source = '#include "factor.h"\n' + SCALE.replace("by * x[at]", "FACTOR * x[at]")
    first, again = (build(source, include=(str(folder),)) for _ in range(2))
    assert (first.build.cached, again.build.cached) == (False, True)
    assert again.build.binary_id == first.build.binary_id
    assert again.build.resources == first.build.resources
    (folder / "deep" / "value.h").write_text("#define FACTOR 3\n")
    changed = build(source, include=(str(folder),))
    assert changed.build.cached is False
    assert changed.build.binary_id != first.build.binary_id


def test_an_include_that_a_macro_names_is_never_reused(build, tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    source = '#define NAME "factor.h"\n#include NAME\n' + SCALE.replace("by *", "FACTOR *")
    made = [build(source, include=(str(tmp_path),)).build for _ in range(2)]
    assert [each.cached for each in made] == [False, False]


def test_a_comment_gives_the_same_binary_and_a_knob_another(build):
    plain, edited = build(SCALE), build(SCALE.replace("int at", "/* where */ int at"))
    assert edited.build.cached is False
    assert edited.build.binary_id == plain.build.binary_id
    assert build(SCALE, knobs={"BLOCK": 256}).build.binary_id != plain.build.binary_id


def test_a_kernel_that_is_compiled_away_is_named(build, calls):
    source = SCALE.replace('extern "C"', '#if BLOCK > 128\nextern "C"') + "#endif\n"
    with pytest.raises(CandidateError, match=r"defines no .*'scale'"):
        build(source).ahead_of_time(calls.vectors())
    assert build(source, knobs={"BLOCK": 256}).ahead_of_time(calls.vectors())


def test_a_call_is_checked_and_then_refused_without_the_gpu(build, calls):
    executable = build(SCALE)
    with pytest.raises(
        CandidateError, match="compiled for sm_90, and a CUDA C\\+\\+ kernel runs on"
    ):
        executable.bind(calls.vectors(), None)
    with pytest.raises(CandidateError, match="float16 tensor"):
        executable.bind(calls.vectors(dtype="float16"), None)
