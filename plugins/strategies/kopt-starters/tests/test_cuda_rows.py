"""Row-wise operators in CUDA C++: results of an emulator against float64, and what compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.model.kernel_file import header_of
from kopt_cuda.compiling import CUBIN, compile_cubin
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.operators import OPERATORS
from kopt_starters.recognition import recognise
from kopt_starters.rendering import render

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]


def softmax(x):
    return torch.softmax(x, -1)


def rms_norm(x, w):
    return F.rms_norm(x, w.shape, w, 1e-5)


def layer_norm(x, w, b):
    return F.layer_norm(x, w.shape, w, b)


def plain_norm(x):
    return F.layer_norm(x, x.shape[-1:])


def add_up(x):
    return x.sum(-1)


def arguments(reference, shape, dtype="float32", dims=1, scale=3.0, shift=0.5):
    generator = torch.Generator().manual_seed(7)
    names = reference.__code__.co_varnames[: reference.__code__.co_argcount]
    drawn = {"x": torch.randn(shape, generator=generator) * scale + shift}
    drawn |= {name: torch.randn(shape[-dims:], generator=generator) for name in names[1:]}
    return {name: value.to(getattr(torch, dtype)) for name, value in drawn.items()}


@pytest.fixture
def kernels(trace):
    """Return the CUDA kernels for a reference's arguments, by template, for a small device or not."""

    def made(reference, given, units=132):
        task = recognise(trace(reference, **given), OPERATORS)
        device = CHECK.GPU.model_copy(update={"units": units})
        fitting = task.operator.fitting("cuda", task.layout(device))
        found = {each.template: render(each, task, device) for each in fitting}
        return {name: kernel for name, kernel in found.items() if kernel is not None}

    return made


def check(kernel, reference, given, **knobs):
    """Hold the largest error to twice PyTorch's own, or two roundings of the largest result."""
    own = reference(*given.values())
    exact = reference(*(value.double() for value in given.values()))
    (got,) = RUN(kernel, [(own.shape, own.dtype)], given, **knobs)
    error, theirs = ((each.double() - exact).abs().max() for each in (got, own))
    assert got.isfinite().all()
    assert error <= max(2 * theirs, 2 * CHECK.UNIT[own.dtype] * exact.abs().max())


@pytest.mark.parametrize("reference", [softmax, rms_norm, layer_norm])
@pytest.mark.parametrize(("shape", "dtype", "dims", "knobs"), [
    ((3, 7), "float32", 1, {}),
    ((2, 3, 1002), "float16", 1, {"STREAM": 1}),
    ((5, 6, 68), "bfloat16", 1, {"LANES": 4, "ROWS": 8}),
    ((3, 2, 5, 72), "float32", 2, {"LANES": 128, "ROWS": 1}),
])  # fmt: skip
def test_rows_in_registers(kernels, reference, shape, dtype, dims, knobs):
    dims = 1 if reference is softmax else dims
    given = arguments(reference, shape, dtype, dims)
    check(kernels(reference, given)[f"{reference.__name__}_rows.cu"], reference, given, **knobs)


@pytest.mark.parametrize("reference", [softmax, rms_norm, layer_norm])
@pytest.mark.parametrize(("cols", "dtype", "kept"), [(8209, "float32", 0), (8200, "bfloat16", 700)])
def test_two_sweeps_over_a_row(kernels, reference, cols, dtype, kept):
    given = arguments(reference, (2, cols), dtype)
    kernel = kernels(reference, given, units=1)["rows_looped.cu"]
    check(kernel, reference, given, KEPT=kept, THREADS=256)


@pytest.mark.parametrize("reference", [softmax, rms_norm, layer_norm])
@pytest.mark.parametrize(("shape", "dtype"), [((1, 16411), "float32"), ((3, 16408), "float16")])
def test_blocks_share_a_row(kernels, reference, shape, dtype):
    given = arguments(reference, shape, dtype)
    check(kernels(reference, given)["rows_split.cu"], reference, given, PARTS=5, THREADS=64)


@pytest.mark.parametrize("reference", [softmax, rms_norm, layer_norm])
@pytest.mark.parametrize("cols", [1, 3, 17, 67])
def test_rows_of_fewer_pieces_than_blocks_share_them(kernels, reference, cols):
    kernel = kernels(reference, arguments(reference, (2, 65537), "float32"))["rows_split.cu"]
    check(kernel, reference, arguments(reference, (3, cols), "float32"), PARTS=32, THREADS=64)


@pytest.mark.parametrize(("reference", "shape", "dtype", "parts"), [
    (add_up, (3, 7), "float32", 0),
    (add_up, (2, 3, 1000), "bfloat16", 0),
    (lambda x: x.sum((1, 2), keepdim=True), (5, 3, 11), "float16", 0),
    (lambda x: x.sum(), (37,), "float32", 0),
    (add_up, (2, 20003), "float32", 3),
    (lambda x: x.sum(), (3, 16384), "float16", 2),
])  # fmt: skip
def test_sums(kernels, reference, shape, dtype, parts):
    given = arguments(reference, shape, dtype)
    kernel = kernels(reference, given)["sum_rows.cu"]
    assert ("PARTS" in kernel.knobs) == (parts > 0)
    check(kernel, reference, given, **({"PARTS": parts, "LANES": 64} if parts else {}))


def test_a_long_sum_does_not_lose_accuracy(kernels):
    given = arguments(add_up, (1, 300_007), scale=0.5, shift=2)
    check(kernels(add_up, given)["sum_rows.cu"], add_up, given, LANES=64, PARTS=2)


@pytest.mark.parametrize(("template", "knobs"), [
    ("softmax_rows.cu", {"LANES": 512}),
    ("rows_looped.cu", {"THREADS": 256}),
    ("rows_split.cu", {"THREADS": 64, "PARTS": 4}),
])  # fmt: skip
def test_softmax_keeps_infinities_and_nan(kernels, template, knobs):
    given = arguments(softmax, (5, 16500))
    x = given["x"]
    x[0], x[1, 5], x[2, 16400], x[3, :9000] = (
        float("-inf"), float("inf"), float("nan"), float("-inf"))  # fmt: skip
    few = {"units": 1} if template == "rows_looped.cu" else {}
    kernel = kernels(softmax, given, **few)[template]
    (got,) = RUN(kernel, [(x.shape, x.dtype)], given, **knobs)
    CHECK.assert_accurate(got, softmax(x.double()))


@pytest.mark.parametrize("template", ["layer_norm_rows.cu", "rows_split.cu", "rows_looped.cu"])
def test_layer_norm_survives_a_large_mean(kernels, template):
    given = arguments(plain_norm, (2, 16400), shift=1e4)
    found = kernels(plain_norm, given, units=1 if template == "rows_looped.cu" else 132)
    check(found[template], plain_norm, given)


def test_which_rows_have_which_kernels(kernels):
    def found(*shape, dtype="float32"):
        return list(kernels(softmax, {"x": torch.zeros(shape, dtype=getattr(torch, dtype))}))

    assert found(4096, 1000) == ["softmax_rows.cu"]
    assert found(2048, 16384) == ["softmax_rows.cu", "rows_looped.cu"]
    assert found(4, 32768, dtype="float16") == ["rows_split.cu", "softmax_rows.cu"]
    assert found(300, 40000, dtype="bfloat16") == ["rows_looped.cu"]
    assert kernels(lambda x: torch.softmax(x, 0), {"x": torch.zeros(8, 8)}) == {}
    mixed = {"x": torch.zeros(4, 8).half(), "w": torch.ones(8)}
    assert kernels(lambda x, w: F.rms_norm(x.float(), (8,), w, 1e-5).half(), mixed) == {}


def test_pieces_are_as_wide_as_rows_allow(kernels):
    for cols, memory in ((24, "uint4"), (20, "uint2"), (18, "__half2"), (17, "__half")):
        given = {"x": torch.zeros(4, cols, dtype=torch.float16)}
        kernel = kernels(softmax, given)["softmax_rows.cu"]
        assert f"using Memory = {memory};" in kernel.source
        first = header_of(kernel.source)["requires"][0]
        assert first.endswith(f"% {({24: 8, 20: 4, 18: 2}).get(cols, 1)} == 0")


@pytest.mark.parametrize(("reference", "shape", "dtype", "architecture"), [
    (softmax, (4096, 4096), "float16", "sm_90"),
    (softmax, (8192, 32768), "float32", "sm_90"),
    (layer_norm, (4, 65536), "bfloat16", "sm_90"),
    (layer_norm, (4096, 1023), "float32", "sm_100"),
    (rms_norm, (2048, 20480), "bfloat16", "sm_90"),
    (rms_norm, (4096, 66), "float16", "sm_80"),
    (add_up, (4, 1 << 20), "float16", "sm_90"),
    (add_up, (1 << 16, 64), "float32", "sm_80"),
])  # fmt: skip
def test_every_knob_value_compiles(kernels, tmp_path, reference, shape, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    kind = getattr(torch, dtype)
    names = reference.__code__.co_varnames[1 : reference.__code__.co_argcount]
    given = {"x": torch.empty(shape, dtype=kind)}
    given |= {name: torch.empty(shape[-1:], dtype=kind) for name in names}
    for kernel in kernels(reference, given).values():
        for end in (0, -1):
            values = {name: knob.choices[end] for name, knob in kernel.knobs.items()}
            options = [f"-D{name}={value}" for name, value in values.items()]
            compile_cubin(toolchain, kernel.source, architecture, options, [], tmp_path)
            assert (tmp_path / CUBIN).stat().st_size > 1000


def unused_rows(x, ROWS):
    return torch.softmax(x, -1)


def unused_lanes(x, LANES):
    return torch.softmax(x, -1)


@pytest.mark.parametrize("reference", [unused_rows, unused_lanes])
def test_an_argument_called_like_a_knob_clashes_though_nothing_reads_it(kernels, reference):
    """The launch plan knows every argument by its name."""
    proposed = kernels(reference, arguments(reference, (64, 256)))
    (name,) = reference.__code__.co_varnames[1:2]
    assert not [kernel for kernel in proposed.values() if name in kernel.knobs]
