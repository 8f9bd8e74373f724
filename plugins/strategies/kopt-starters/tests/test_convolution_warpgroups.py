"""Convolutions on Hopper's tensor cores, in CUDA C++: run by a CPU against float64, and compiled."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

HERE = Path(__file__)
CONVOLVING = SimpleNamespace(**runpy.run_path(str(HERE.with_name("convolving.py"))))

CASES = {
    # function and what it is given beside x, w and b: shapes of x and w, and knobs
    "F.conv2d(x, w, b)": ((2, 16, 6, 72), (32, 16, 3, 3), {"LINES": 1, "ALIGN": 16}),
    "F.conv2d(x, w, None, padding=1)": ((1, 16, 11, 80), (24, 16, 3, 3), {"LINES": 8}),
    "F.conv1d(x, w, b)": ((3, 32, 104), (48, 32, 5), {"WARPGROUPS": 2, "ALIGN": 32}),
    "F.conv1d(x, w, b, stride=3, dilation=4)": ((2, 16, 400), (32, 16, 3), {"PIXELS": 128}),
    "F.conv2d(x, w, b, stride=(1, 2), padding=(2, 9), dilation=(3, 5))": (
        (1, 16, 9, 64), (16, 16, 2, 4), {}),
    "F.conv_transpose2d(x, w, b, padding=(1, 3))": ((1, 16, 4, 64), (16, 32, 3, 7), {"WARPGROUPS": 2}),
    "F.conv_transpose1d(x, w, None, dilation=3)": ((2, 32, 200), (32, 64, 5), {"WARPGROUPS": 3}),
    "F.conv3d(x, w, b, stride=(2, 1, 1), padding=(1, 0, 2))": ((1, 16, 4, 4, 72), (16, 16, 3, 2, 3), {}),
    "F.conv_transpose3d(x, w, b, padding=1)": ((1, 16, 2, 3, 64), (16, 24, 2, 2, 3), {"WARPGROUPS": 4}),
    "F.conv1d(x, w, b, padding=1)": ((1, 96, 136), (160, 96, 3), {}),
    "F.conv2d(x, w, None, padding=(0, 1))": (
        (1, 16, 3, 272), (64, 16, 2, 3), {"PIXELS": 120, "ALIGN": 32}),
    "F.conv1d(x, w, b, padding=2)": ((2, 16, 296), (64, 16, 3), {"PIXELS": 96, "ALIGN": 32}),
    "F.conv1d(x, w, b, padding=1, stride=3)": ((2, 16, 200), (64, 16, 3), {"PIXELS": 40}),
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
    return partial(CONVOLVING.proposed, graph_of, "warpgroups")


@pytest.mark.parametrize(("body", "dtype"), CONVOLVING.dtypes_of(CASES))
def test_results_are_those_of_float64(propose, body, dtype):
    x, w, knobs = CASES[body]
    (candidate,) = propose(body, x, w, dtype)
    CONVOLVING.check(candidate, body, x, w, dtype, **knobs)


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
    for x, w in LARGE[body]:
        for candidate in propose(body, x, w, dtype):
            used, shared, log = CONVOLVING.compiled(candidate, "sm_90a", tmp_path)
            assert used.spill_bytes in (0, None)
            assert "wgmma" not in log  # no warning that they wait for one another
            assert shared <= SHARED
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
