"""The Python form without a GPU: what its launcher would start, compiled for a named target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import is_python, load_kernel, parse_kernel
from kopt.model.values import NamedValue
from kopt.model.verification import Status

pytest.importorskip("cupy")

PATH = Path(__file__).parent / "scale.py"
SCALE = PATH.read_text(encoding="utf-8")
COMPILERS = ["nvrtc", "nvcc"]
EAGER = SCALE.replace(
    '@functools.cache\ndef kernel(block):\n    return cupy.RawKernel(SOURCE, "scale", ',
    'MODULE = cupy.RawModule(code=SOURCE, options=("-DBLOCK=128",))\n'
    'KERNEL = MODULE.get_function("scale")\n\n\ndef kernel(block):\n    return KERNEL  # (',
)
TEMPLATES = """\
# /// kopt
# language = "cuda"
# ///
import cupy
import torch

SOURCE = '''
template <typename T> __global__ void twice(const T *x, T *out) {
    out[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x];
}
'''
MODULE = cupy.RawModule(code=SOURCE, name_expressions=["twice<float>", "twice<double>"])


def kernel_function(x):
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    name = "twice<float>" if x.dtype == torch.float32 else "twice<double>"
    MODULE.get_function(name)((1,), (x.shape[0],), (x.data_ptr(), out.data_ptr()))
    return out
"""
MODEL = """\
# /// kopt
# language = "cuda"
# ///
import cupy
import torch

SOURCE = '''
extern "C" __global__ void times(const float *x, const float *w, float *out) {
    extern __shared__ float part[];
    part[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = part[threadIdx.x] * *w;
}
'''


class ModelNew(torch.nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.kernel = cupy.RawKernel(SOURCE, "times")
        self.shared = shared
        # opts in here

    def forward(self, x):
        assert x.is_cuda
        out = torch.empty_like(x)
        pointers = (x.data_ptr(), self.weight.data_ptr(), out.data_ptr())
        self.kernel((1,), x.shape, pointers, shared_mem=self.shared)
        return out
"""


def refused(build, source, call):
    with pytest.raises(CandidateError) as caught:
        build(source).ahead_of_time(call)
    return caught.value.status, caught.value.detail


def line_of(source: str, text: str) -> int:
    (found,) = (n for n, line in enumerate(source.splitlines(), 1) if text in line)
    return found


def model(calls, shared: int):
    call = calls.of((calls.tensor((64,)),), x=calls.tensor((64,)))
    init = calls.of(shared=shared).arguments
    state = {"weight": calls.tensor((1,))}
    return call.model_copy(update={"init": init, "state": state})


def test_a_python_file_of_language_cuda_is_of_this_form():
    kernel = load_kernel(PATH)
    assert (kernel.language, kernel.entry, kernel.settings) == ("cuda", "scale", {})
    assert is_python(kernel.source, kernel.language)
    assert parse_kernel(TEMPLATES, "cuda").entry == "kernel_function"
    assert parse_kernel(MODEL, "cuda").entry == "ModelNew"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("block", [128, 256])
def test_launches_are_followed(build, calls, block, architecture, compiler):
    kernel = load_kernel(PATH).with_values("test", BLOCK=block)
    executable = build(kernel, architecture, compiler=compiler)
    (used,) = executable.ahead_of_time(calls.vectors(1000))
    assert (used.name, used.architecture) == ("scale", architecture)
    assert (used.grid, used.threads) == ((-(-1000 // block), 1, 1), block)
    assert 4 <= used.registers <= 32
    assert executable.build.resources["kernels"] == [used.to_json()]
    assert "not_followed" not in executable.build.resources


def test_what_is_made_at_import_is_compiled_with_the_build(build, calls):
    executable = build(EAGER)
    (kernel,) = executable.build.resources["kernels"]
    assert (kernel["name"], kernel["grid"]) == ("scale", None)
    (used,) = executable.ahead_of_time(calls.vectors())
    assert used.grid == (8, 1, 1)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_instance_of_a_template_is_compiled_by_its_name(build, calls, compiler):
    executable = build(TEMPLATES, compiler=compiler)
    found = {}
    for dtype in ("float32", "float64"):
        (used,) = executable.ahead_of_time(calls.vectors(64, dtype))
        found[dtype] = used.name
        assert used.threads == 64
    assert "twiceIf" in found["float32"]
    assert "twiceId" in found["float64"]


def test_a_module_is_made_with_the_references_arguments_and_state(build, calls):
    (used,) = build(MODEL).ahead_of_time(model(calls, 1024))
    assert (used.name, used.threads, used.shared_bytes) == ("times", 64, 1024)


def test_shared_memory_above_48_kib_needs_the_opt_in(build, calls):
    status, detail = refused(build, MODEL, model(calls, 100_000))
    assert status is Status.LAUNCH_FAILED
    assert f"kernel.py:{line_of(MODEL, 'self.kernel((1,)')}: " in detail
    assert "max_dynamic_shared_size_bytes = 100000" in detail
    asked = MODEL.replace(
        "# opts in here", "self.kernel.max_dynamic_shared_size_bytes = self.shared"
    )
    (used,) = build(asked).ahead_of_time(model(calls, 100_000))
    assert used.shared_bytes == 100_000
    status, detail = refused(build, asked, model(calls, 300_000))
    assert status is Status.COMPILE_ERROR
    assert "sm_90 gives 232448" in detail


def test_a_block_of_too_many_threads_is_refused_with_its_line(build, calls):
    source = SCALE.replace("(BLOCK,), arguments", "(BLOCK * 16,), arguments")
    status, detail = refused(build, source, calls.vectors())
    assert status is Status.LAUNCH_FAILED
    line = line_of(source, "BLOCK * 16")
    assert detail.startswith(f"kernel.py:{line}: launch of scale: block is [2048, 1, 1]")


@pytest.mark.parametrize("form", [SCALE, EAGER], ids=["lazy", "at import"])
def test_the_compilers_words_have_the_line_of_the_file(build, calls, form):
    source = form.replace("by * x[at]", "by * missing[at]")
    status, detail = refused(build, source, calls.vectors())
    assert status is Status.COMPILE_ERROR
    wanted = f'kernel.py:{line_of(source, "missing")}: error: identifier "missing" is undefined'
    assert detail.startswith(wanted)


def test_a_source_that_python_changed_keeps_its_lines_where_they_can_be_told(build, calls):
    source = SCALE.replace("by * x[at]", "by * missing[at]").replace(
        "RawKernel(SOURCE,", "RawKernel('#define MORE\\n' + SOURCE,"
    )
    _, detail = refused(build, source, calls.vectors())
    assert detail.startswith(f"kernel.py:{line_of(source, 'missing')}: error: ")
    changed = SCALE.replace("RawKernel(SOURCE,", "RawKernel(SOURCE.replace('x[at]', 'y'),")
    _, detail = refused(build, changed, calls.vectors())
    assert detail.startswith("kernel.py, line 4 of the CUDA source: error: identifier")


@pytest.mark.parametrize("form", [SCALE, EAGER], ids=["lazy", "at import"])
def test_a_kernel_that_is_not_there_is_named(build, calls, form):
    source = form.replace("void scale(", "void scael(")
    status, detail = refused(build, source, calls.vectors())
    assert status is Status.COMPILE_ERROR
    assert re.match(r"kernel\.py:\d+: the CUDA source has no kernel 'scale'; it has: scael", detail)


def test_a_launcher_that_needs_values_is_said_so(build, calls):
    hidden = "torch.empty_like(x) if x.sum() > 0 else x"
    executable = build(EAGER.replace("torch.empty_like(x)", hidden))
    (used,) = executable.ahead_of_time(calls.vectors())
    assert (used.name, used.grid) == ("scale", None)
    why = executable.build.resources["not_followed"]
    assert re.match(r"kernel\.py:\d+: RuntimeError: .*meta", why)
    status, detail = refused(build, SCALE.replace("torch.empty_like(x)", hidden), calls.vectors())
    assert status is Status.UNSUPPORTED
    assert "a .cu file with a launch plan" in detail


def test_it_does_not_run_here(build, calls):
    executable = build(SCALE)
    assert executable.timeable is False
    with pytest.raises(CandidateError, match=r"compiled for sm_90, and .* NVIDIA GPU") as caught:
        executable.bind(calls.vectors(), None)
    assert caught.value.status is Status.UNSUPPORTED


def test_failures_of_the_file_itself_have_their_own_status(build):
    for source, status, words in (
        (SCALE.replace("def scale(", "def scale(("), Status.PARSE_ERROR, r"line \d+: "),
        (SCALE.replace("import functools", "import no_such_thing"), Status.LAUNCH_FAILED,
         r"kernel\.py:\d+: ModuleNotFoundError"),
        (SCALE.replace("# [knobs]", "# grid = [1]\n# [knobs]"), Status.PARSE_ERROR,
         "grid in the header is of a launch plan"),
        (SCALE.replace('entry = "scale"', 'entry = "other"'), Status.PARSE_ERROR, "'other'"),
        (SCALE.replace("@functools.cache", "cupy.RawModule(path='a.cubin')\n"),
         Status.UNSUPPORTED, "only a GPU can load it"),
    ):  # fmt: skip
        with pytest.raises(CandidateError, match=words) as caught:
            build(source)
        assert caught.value.status is status


def test_comments_do_not_change_what_it_is_and_knobs_do(build):
    first = build(SCALE).build
    again = build(SCALE.replace("import torch\n", "import torch  # for tensors\n")).build
    assert (again.binary_id, again.launch_id) == (first.binary_id, first.launch_id)
    others = [
        build(load_kernel(PATH).with_values("test", BLOCK=256)).build,
        build(SCALE.replace("by * x", "by + x")).build, build(SCALE, "sm_80").build,
        build(SCALE.replace("numpy.float32(2)", "numpy.float32(3)")).build,
    ]  # fmt: skip
    assert len({first.binary_id, *(other.binary_id for other in others)}) == 5


def test_nothing_of_cupy_or_torch_stays_replaced(build, calls):
    import cupy
    import torch

    before = (cupy.RawKernel, cupy.RawModule, cupy.asarray, torch.cuda.is_available())
    build(SCALE).ahead_of_time(calls.vectors())
    after = (cupy.RawKernel, cupy.RawModule, cupy.asarray, torch.cuda.is_available())
    assert after == before
    assert torch.empty(1).is_cuda is False


def test_the_readmes_python_file_compiles(build, calls):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    (kernel,) = build(block).ahead_of_time(calls.vectors())
    assert kernel.grid == (4, 1, 1)


def test_keywords_reach_the_launcher(build, calls):
    source = SCALE.replace("def scale(x,", "def scale(x, factor,").replace(
        "float32(2)", "float32(factor)"
    )
    call = calls.vectors()
    by = NamedValue(name="factor", value=calls.of(f=2.5).arguments[0].value, keyword=True)
    call = call.model_copy(update={"arguments": (*call.arguments, by)})
    (used,) = build(source).ahead_of_time(call)
    assert used.name == "scale"


def test_listings_are_of_what_was_compiled(build, calls):
    executable = build(SCALE)
    (found,) = executable.listing("ptx", calls.vectors()).items()
    assert found[0] == "scale"
    assert ".entry scale(" in found[1]
    other = build(load_kernel(PATH).with_values("test", BLOCK=256))
    assert other.listing("ptx", calls.vectors())["scale"] != found[1]
    assert set(executable.listing_kinds) == {"ptx", "sass"}
    hidden = SCALE.replace("torch.empty_like(x)", "torch.empty_like(x) if x.sum() > 0 else x")
    with pytest.raises(CandidateError, match="no CUDA source was found"):
        build(hidden).listing("ptx", calls.vectors())


def test_a_header_that_only_kopts_compiler_has_is_warned_of(build, calls):
    source = SCALE.replace('extern "C"', '#include <cstdint>\nextern "C"')
    executable = build(source)
    executable.ahead_of_time(calls.vectors())
    line = line_of(source, "#include <cstdint>")
    wanted = f"kernel.py:{line}: warning: <cstdint>: cupy has no standard headers"
    assert executable.build.log.startswith(wanted)
    plain = build(SCALE)
    plain.ahead_of_time(calls.vectors())
    assert plain.build.log == ""
