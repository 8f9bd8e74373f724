"""The Python form on a GPU: results, streams, figures, and failures under their own names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.kernel_file import load_kernel
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.testing.tensors import OwnTensors
from kopt_torch.executable import PythonCall
from kopt_torch.tensors import NAMES

PATH = Path(__file__).parent / "scale.py"
SCALE = PATH.read_text(encoding="utf-8")
AT_IMPORT = SCALE.replace(
    '@functools.cache\ndef kernel(block):\n    return cupy.RawKernel(SOURCE, "scale", ',
    'MODULE = cupy.RawModule(code=SOURCE, options=("-DBLOCK=128",))\n'
    'KERNEL = MODULE.get_function("scale")\n\n\ndef kernel(block):\n    return KERNEL  # (',
)
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
        self.kernel.max_dynamic_shared_size_bytes = shared
        self.shared = shared

    def forward(self, x):
        out = torch.empty_like(x)
        pointers = (x.data_ptr(), self.weight.data_ptr(), out.data_ptr())
        self.kernel((1,), tuple(x.shape), pointers, shared_mem=self.shared)
        return out
"""
pytestmark = pytest.mark.gpu


def bound_to(executable, out, x, state=None, init=()):
    every = {"x": x, "out": out, **(state or {})}
    refs = {
        name: TensorRef(
            segment=number, offset=0, dtype=NAMES[item.dtype], shape=tuple(item.shape),
            strides=item.stride(),
        )
        for number, (name, item) in enumerate(every.items())
    }  # fmt: skip
    call = CallSpec(
        arguments=(NamedValue(name="x", value=refs["x"]),), outputs=(refs["out"],), init=init,
        state={name: refs[name] for name in state or {}},
    )  # fmt: skip
    return PythonCall(executable, call, OwnTensors(*every.values()))


def result(executable, x, **more):
    out = torch.zeros_like(x)
    bound = bound_to(executable, out, x, **more)
    bound.launch()
    claim = bound.collect()
    assert claim.structure == "tensor"
    assert executable.device_ms([bound], 20) > 0
    return out


def failure(build, here, source, x=None):
    x = torch.ones(1000, device="cuda") if x is None else x
    with pytest.raises(CandidateError) as caught:
        bound_to(build(source, here, gpu=True), torch.zeros_like(x), x).launch()
    return caught.value.status, caught.value.detail


def line_of(source: str, text: str) -> int:
    (found,) = (n for n, line in enumerate(source.splitlines(), 1) if text in line)
    return found


@pytest.mark.parametrize("form", [SCALE, AT_IMPORT], ids=["lazy", "at import"])
def test_it_is_right_and_timed(build, here, form):
    x = torch.randn(1000, device="cuda")
    assert torch.equal(result(build(form, here, gpu=True), x), 2 * x)


@pytest.mark.parametrize("form", [SCALE, AT_IMPORT], ids=["lazy", "at import"])
def test_figures_of_what_was_compiled_are_there_after_a_launch(build, here, form):
    executable = build(form, here, gpu=True)
    assert "kernels" not in executable.build.resources
    result(executable, torch.ones(1000, device="cuda"))
    (kernel,) = executable.build.resources["kernels"]
    assert (kernel["name"], kernel["architecture"]) == ("scale", here)
    assert 4 <= kernel["registers"] <= 32
    assert (kernel["static_shared_bytes"], kernel["stack_bytes"]) == (0, 0)


def test_a_kernel_of_each_knob_value(build, here):
    x = torch.randn(1000, device="cuda")
    ids = set()
    for block in (128, 256):
        kernel = load_kernel(PATH).with_values("test", BLOCK=block)
        executable = build(kernel, here, gpu=True)
        assert torch.equal(result(executable, x), 2 * x)
        ids.add(executable.build.binary_id)
    assert len(ids) == 2


def test_a_timeline_has_what_cupy_launched(build, here):
    x = torch.randn(1000, device="cuda")
    executable = build(SCALE, here, gpu=True)
    timeline = executable.timeline(bound_to(executable, torch.zeros_like(x), x), 3)
    assert [run.name for run in timeline.kernels] == ["scale"] * 3
    assert all(run.duration_us > 0 and run.grid and run.block for run in timeline.kernels)


def test_kernel_function_is_an_entry(build, here):
    source = SCALE.replace('# entry = "scale"\n', "").replace("def scale(", "def kernel_function(")
    x = torch.randn(1000, device="cuda")
    assert torch.equal(result(build(source, here, gpu=True), x), 2 * x)


def test_a_module_gets_arguments_state_and_much_shared_memory(build, here):
    x = torch.randn(64, device="cuda")
    weight = torch.full((1,), 3.0, device="cuda")
    init = (NamedValue(name="shared", value=ScalarValue(value=60_000)),)
    executable = build(MODEL, here, gpu=True)
    assert torch.equal(result(executable, x, state={"weight": weight}, init=init), 3 * x)


@pytest.mark.parametrize("form", [SCALE, AT_IMPORT], ids=["lazy", "at import"])
def test_it_launches_on_torchs_current_stream(build, here, form):
    x = torch.ones(1 << 20, device="cuda")
    bound = bound_to(build(form, here, gpu=True), out := torch.zeros_like(x), x)
    bound.launch()  # compiles
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        bound.launch()
        bound.collect()
    assert torch.equal(out, torch.full_like(x, 6))


def test_cupys_own_stream_is_as_before_after_a_call(build, here):
    import cupy

    x = torch.ones(8, device="cuda")
    bound = bound_to(build(SCALE, here, gpu=True), torch.zeros_like(x), x)
    before = cupy.cuda.get_current_stream().ptr
    with torch.cuda.stream(torch.cuda.Stream()):
        bound.launch()
    assert cupy.cuda.get_current_stream().ptr == before


@pytest.mark.parametrize("form", [SCALE, AT_IMPORT], ids=["lazy", "at import"])
def test_the_compilers_words_have_the_line_of_the_file(build, here, form):
    source = form.replace("by * x[at]", "by * missing[at]")
    status, detail = failure(build, here, source)
    assert status is Status.COMPILE_ERROR
    wanted = f'kernel.py:{line_of(source, "missing")}: error: identifier "missing" is undefined'
    assert detail.startswith(wanted)


@pytest.mark.parametrize("form", [SCALE, AT_IMPORT], ids=["lazy", "at import"])
def test_a_kernel_that_is_not_there(build, here, form):
    status, detail = failure(build, here, form.replace("void scale(", "void scael("))
    assert status is Status.COMPILE_ERROR
    assert detail.startswith("kernel.py:")
    assert "not found" in detail


def test_what_the_driver_refuses_is_a_failed_launch_with_its_line(build, here):
    source = SCALE.replace("(BLOCK,), arguments", "(BLOCK * 16,), arguments")
    status, detail = failure(build, here, source)
    assert status is Status.LAUNCH_FAILED
    assert detail.startswith(f"kernel.py:{line_of(source, 'BLOCK * 16')}: ")
    assert "CUDA_ERROR" in detail


def test_a_launcher_that_raises_is_a_failed_launch_with_its_line(build, here):
    source = SCALE.replace("x.numel()", "x.no_such_thing()")
    status, detail = failure(build, here, source)
    assert status is Status.LAUNCH_FAILED
    assert detail.startswith(f"kernel.py:{line_of(source, 'no_such_thing')}: AttributeError")


def test_memory_of_cupys_own_is_given_back(build, here):
    import cupy

    source = SCALE.replace(
        "    return out", "    cupy.empty(1 << 24, dtype='float32')\n    return out"
    )
    executable = build(source, here, gpu=True)
    result(executable, torch.ones(1000, device="cuda"))
    assert cupy.get_default_memory_pool().total_bytes() >= 1 << 26
    executable.trim()
    assert cupy.get_default_memory_pool().total_bytes() == 0
