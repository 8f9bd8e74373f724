"""Convolutions on Hopper's tensor cores, in CUDA C++: run by a CPU against float64, and compiled."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.model.expressions import evaluate
from kopt_cuda.compiling import LOG, compile_cubin
from kopt_cuda.plan import plan_of
from kopt_cuda.resources import resources_of
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.convolution import ConvolutionFamily

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
ON_CPU = SimpleNamespace(**runpy.run_path(str(HERE.with_name("cuda_on_cpu.py"))))
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})

CASES = {
    # function and what it is given beside x, w and b: shapes of x and w, and knobs
    "F.conv2d(x, w, b)": ((2, 16, 6, 72), (32, 16, 3, 3), {"LINES": 1, "ALIGN": 16}),
    "F.conv2d(x, w, None, padding=1)": ((1, 16, 11, 80), (24, 16, 3, 3), {"LINES": 8}),
    "F.conv1d(x, w, b)": ((3, 32, 104), (48, 32, 5), {"GROUPS": 2, "ALIGN": 32}),
    "F.conv1d(x, w, b, stride=3, dilation=4)": ((2, 16, 400), (32, 16, 3), {"PIXELS": 128}),
    "F.conv2d(x, w, b, stride=(1, 2), padding=(2, 9), dilation=(3, 5))": (
        (1, 16, 9, 64), (16, 16, 2, 4), {}),
    "F.conv_transpose2d(x, w, b, padding=(1, 3))": ((1, 16, 4, 64), (16, 32, 3, 7), {"GROUPS": 2}),
    "F.conv_transpose1d(x, w, None, dilation=3)": ((2, 32, 200), (32, 64, 5), {"GROUPS": 3}),
    "F.conv3d(x, w, b, stride=(2, 1, 1), padding=(1, 0, 2))": ((1, 16, 4, 4, 72), (16, 16, 3, 2, 3), {}),
    "F.conv_transpose3d(x, w, b, padding=1)": ((1, 16, 2, 3, 64), (16, 24, 2, 2, 3), {"GROUPS": 4}),
    "F.conv1d(x, w, b, padding=1)": ((1, 96, 136), (160, 96, 3), {}),
    "F.conv2d(x, w, None, padding=(0, 1))": (
        (1, 16, 3, 272), (64, 16, 2, 3), {"PIXELS": 120, "ALIGN": 32}),
    "F.conv1d(x, w, b, padding=2)": ((2, 16, 296), (64, 16, 3), {"PIXELS": 96, "ALIGN": 32}),
    "F.conv_transpose1d(x, w, b, stride=2, padding=1, dilation=2)": ((2, 32, 136), (32, 64, 3), {}),
    "F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1)": (
        (1, 16, 200), (16, 64, 4), {"PIXELS": 40, "ALIGN": 16}),
    "F.conv_transpose2d(x, w, b, stride=(3, 2), padding=(1, 2), output_padding=(2, 1))": (
        (1, 16, 5, 64), (16, 64, 2, 5), {"LINES": 1}),
    "F.conv_transpose2d(x, w, b, stride=5, padding=1, dilation=2)": (
        (1, 16, 3, 64), (16, 64, 3, 3), {"LINES": 4}),
    "F.conv_transpose3d(x, w, b, stride=(2, 1, 2), padding=(0, 1, 1), dilation=(2, 1, 2))": (
        (1, 16, 2, 3, 40), (16, 64, 3, 2, 3), {}),
    "F.conv_transpose2d(x, w, None, stride=(2, 1))": ((1, 16, 3, 72), (16, 128, 3, 3), {}),
    "F.conv2d(x, w, b, padding=(1, 1))": ((1, 16, 4, 136), (128, 16, 3, 3), {"PIXELS": 120, "ALIGN": 16}),
}  # fmt: skip


@pytest.fixture
def propose(graph_of):
    """Return the kernel of warpgroups for a convolution over arguments of these shapes, if any."""

    def proposed(body, x, w, dtype="bfloat16", architecture="sm_90"):
        out = w[1] if "transpose" in body else w[0]
        graph = graph_of(f"def reference(x, w, b): return {body}", dtype=dtype, x=x, w=w, b=(out,))
        device = CUDA.device.model_copy(update={"architecture": architecture})
        target = CUDA.model_copy(update={"device": device})
        found = ConvolutionFamily().propose(graph, target)
        return [each for each in found if "warpgroups" in each.idea]

    return proposed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_float64(propose, body, dtype):
    x, w, knobs = CASES[body]
    (candidate,) = propose(body, x, w, dtype)
    generator = torch.Generator().manual_seed(2)
    shapes = {"x": x, "w": w, "b": (w[1] if "transpose" in body else w[0],)}
    given = {
        name: torch.randn(shape, generator=generator).to(getattr(torch, dtype))
        for name, shape in shapes.items()
    }
    # In float32 of what TF32 keeps of both factors.
    wide = {n: (each if n == "b" else in_tf32(each)).double() for n, each in given.items()}
    exact = eval(body, {"F": F} | wide)
    if "None" in body:
        del given["b"]
    (got,) = ON_CPU.run(candidate, [(exact.shape, given["x"].dtype)], given, **knobs)
    CHECK.assert_accurate(got, exact, 8 if dtype == "float32" else 4)


def in_tf32(value):
    if value.dtype != torch.float32:
        return value
    return (value.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


LARGE = {
    "F.conv2d(x, w)": [((16, 16, 1024, 1024), (128, 16, 3, 3)), ((8, 64, 512, 1024), (128, 64, 3, 3))],
    "F.conv_transpose1d(x, w)": [((64, 128, 65536), (128, 128, 3))],
    "F.conv1d(x, w, None, stride=3, dilation=4)": [((64, 64, 524280), (128, 64, 3))],
    "F.conv_transpose2d(x, w)": [((8, 64, 1024, 1024), (64, 64, 3, 3)), ((8, 32, 512, 1024), (32, 32, 3, 3))],
    "F.conv_transpose3d(x, w)": [((8, 48, 96, 96, 96), (48, 24, 3, 3, 3))],
    "F.conv_transpose1d(x, w, None, dilation=3)": [((32, 32, 131072), (32, 64, 5))],
    "F.conv_transpose1d(x, w, None, 2, 1, dilation=2)": [((16, 32, 131072), (32, 64, 3))],
    "F.conv_transpose2d(x, w, None, 5, 1, dilation=2)": [((16, 32, 64, 128), (32, 64, 3, 3))],
}  # fmt: skip
SHARED = 227 * 1024


@pytest.mark.parametrize("body", LARGE)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_defaults_compile_without_spills_and_overlap_products(propose, tmp_path, body, dtype):
    toolchain = find_toolchain()
    for x, w in LARGE[body]:
        for candidate in propose(body, x, w, dtype):
            knobs = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
            flags = [*plan_of(candidate).flags, *knobs]
            compile_cubin(toolchain, candidate.source, "sm_90a", flags, [], tmp_path)
            log = (tmp_path / LOG).read_text()
            (used,) = resources_of(log).values()
            assert used.spill_bytes in (0, None)
            assert "wgmma" not in log  # no warning that they wait for one another
            (call,) = plan_of(candidate).launch
            assert evaluate(call.shared, candidate.chosen) <= SHARED
        if dtype == "bfloat16":
            assert propose(body, x, w, dtype)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100", "sm_120"])
def test_only_hopper_multiplies_so(propose, architecture):
    body, x, w = "F.conv2d(x, w, b)", (2, 16, 6, 72), (32, 16, 3, 3)
    assert propose(body, x, w)
    assert not propose(body, x, w, architecture=architecture)


@pytest.mark.parametrize(
    ("body", "x", "w"),
    [
        ("F.conv2d(x, w, b)", (2, 16, 5, 70), (32, 16, 3, 3)),  # rows are not whole pieces
        ("F.conv2d(x, w, b)", (2, 8, 5, 72), (32, 8, 3, 3)),  # half a product's depth
        ("F.conv2d(x, w, b, groups=2)", (2, 32, 5, 72), (32, 16, 3, 3)),
        ("F.conv2d(x, w, b, stride=2)", (2, 16, 5, 72), (32, 16, 3, 3)),
        ("F.conv2d(x, w, b)", (2, 16, 5, 72), (32, 16, 1, 1)),  # an ordinary product
        ("F.conv_transpose1d(x, w, b, stride=2)", (2, 16, 72), (16, 32, 3)),  # half of 64 channels
        ("F.conv2d(x, w, b)", (2, 512, 9, 72), (512, 512, 5, 5)),  # weights do not fit
    ],
)
def test_what_it_does_not_do(propose, body, x, w):
    assert not propose(body, x, w)
