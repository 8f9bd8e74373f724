"""Convolutions in CUDA C++: run by a CPU against float64, compiled for three architectures."""

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
SMALL = {"BLOCK_N": 64, "BLOCKS": 1}

CASES = {
    # function and what it is given beside x, w and b: shapes of x and w, and knobs
    "F.conv2d(x, w, b)": ((2, 16, 5, 72), (32, 16, 3, 3), {}),
    "F.conv2d(x, w, None, padding=1)": ((1, 16, 4, 80), (24, 16, 3, 3), {"WARP_M": 16}),
    "F.conv1d(x, w, b)": ((3, 32, 104), (48, 32, 5), {"WARP_N": 64}),
    "F.conv1d(x, w, b, stride=3, dilation=4)": ((2, 16, 400), (32, 16, 3), {}),
    "F.conv2d(x, w, b, stride=(2, 1), padding=(2, 9), dilation=(1, 5))": (
        (1, 16, 7, 64), (16, 16, 2, 4), {}),
    "F.conv_transpose2d(x, w, b, padding=(1, 3))": ((1, 16, 4, 64), (16, 32, 3, 7), {"WARP_M": 32}),
    "F.conv_transpose1d(x, w, None, dilation=3)": ((2, 32, 200), (32, 48, 5), {"BLOCK_N": 128}),
    "F.conv3d(x, w, b, padding=(1, 0, 2))": ((1, 16, 3, 4, 72), (16, 16, 3, 2, 3), {}),
    "F.conv_transpose3d(x, w, b)": ((1, 16, 2, 3, 64), (16, 24, 2, 2, 3), {}),
    "F.conv1d(x, w, b, padding=1)": ((1, 128, 136), (160, 128, 3), {"WARP_N": 32}),
    "F.conv_transpose1d(x, w, b, stride=2, padding=1, dilation=2)": ((2, 32, 136), (32, 48, 3), {}),
    "F.conv_transpose2d(x, w, b, stride=(3, 2), padding=(1, 2), output_padding=(2, 1))": (
        (1, 16, 3, 64), (16, 32, 2, 5), {}),
    "F.conv_transpose2d(x, w, None, stride=5, padding=1, dilation=2)": (
        (1, 16, 2, 64), (16, 16, 3, 3), {"WARP_N": 16}),
    "F.conv_transpose3d(x, w, b, stride=(2, 1, 2), padding=(0, 1, 1), dilation=(2, 1, 1))": (
        (1, 16, 2, 3, 64), (16, 16, 2, 2, 3), {}),
}  # fmt: skip


@pytest.fixture
def propose(graph_of):
    """Return the kernel that keeps weights on chip for a convolution over such arguments, if any."""
    return partial(CONVOLVING.proposed, graph_of, "stay on chip")


@pytest.mark.parametrize(("body", "dtype"), CONVOLVING.dtypes_of(CASES))
def test_results_are_those_of_float64(propose, body, dtype):
    x, w, knobs = CASES[body]
    (candidate,) = propose(body, x, w, dtype)
    CONVOLVING.check(candidate, body, x, w, dtype, **SMALL | knobs)


LARGE = {
    "F.conv2d(x, w)": [((16, 16, 1024, 1024), (128, 16, 3, 3)), ((8, 64, 512, 1024), (128, 64, 3, 3))],
    "F.conv_transpose1d(x, w)": [((64, 128, 65536), (128, 128, 3))],
    "F.conv1d(x, w, None, stride=3, dilation=4)": [((64, 64, 524280), (128, 64, 3))],
    "F.conv_transpose2d(x, w)": [((8, 64, 1024, 1024), (64, 64, 3, 3))],
    "F.conv_transpose3d(x, w)": [((8, 48, 64, 64, 64), (48, 48, 3, 3, 3))],
    "F.conv_transpose1d(x, w, None, 2, 1, dilation=2)": [((16, 32, 131072), (32, 64, 3))],
    "F.conv_transpose2d(x, w, None, 5, 1, dilation=2)": [((16, 32, 64, 128), (32, 64, 3, 3))],
}  # fmt: skip


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("body", LARGE)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_defaults_compile_without_spills_and_fit(propose, tmp_path, body, architecture, dtype):
    for x, w in LARGE[body]:
        (candidate,) = propose(body, x, w, dtype, architecture)
        used, shared, _ = CONVOLVING.compiled(candidate, architecture, tmp_path)
        assert used.spill_bytes in (0, None)
        assert shared <= {"sm_80": 163, "sm_90": 227, "sm_100": 227}[architecture] * 1024


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80"])
def test_what_an_architecture_lacks_is_not_asked_of_it(propose, architecture):
    x, w = (8, 64, 512, 1024), (128, 64, 3, 3)
    found = propose("F.conv2d(x, w)", x, w, architecture=architecture)
    assert len(found) == (architecture == "sm_80")
    if found:  # half of the rows, whose weights fit into less shared memory
        assert "BLOCK_M = 64;" in found[0].source
    assert "BLOCK_M = 128;" in propose("F.conv2d(x, w)", x, w)[0].source


@pytest.mark.parametrize(
    ("body", "x", "w", "dtype"),
    [
        ("F.conv2d(x, w, b)", (2, 16, 5, 70), (32, 16, 3, 3), "float32"),
        ("F.conv2d(x, w, b)", (2, 16, 5, 70), (32, 16, 3, 3), "bfloat16"),
        ("F.conv2d(x, w, b)", (2, 3, 5, 72), (32, 3, 3, 3), "bfloat16"),
        ("F.conv2d(x, w, b, groups=2)", (2, 32, 5, 72), (32, 16, 3, 3), "bfloat16"),
        ("F.conv2d(x, w, b)", (2, 16, 5, 72), (32, 16, 1, 1), "bfloat16"),
        ("F.conv2d(x, w, b).relu()", (2, 16, 5, 72), (32, 16, 3, 3), "bfloat16"),
        ("F.conv2d(x, w, b)", (2, 256, 20, 72), (32, 256, 15, 15), "bfloat16"),
    ],
)
def test_what_does_not_fit_gets_none(propose, body, x, w, dtype):
    assert propose(body, x, w, dtype) == []
