"""Listings of CUDA C++: PTX by either compiler, SASS by whichever disassembler is here."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import unpack_from

import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda import listing
from kopt_cuda.compiling import whole

SCALE = (Path(__file__).parent / "scale.cu").read_text(encoding="utf-8")
COMPILERS = ["nvrtc", "nvcc"]


@pytest.fixture
def tool():
    """A disassembler."""
    found = next(listing.disassemblers(), None)
    if found is None:
        pytest.skip("no disassembler here; pip install triton")
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_ptx_of_each_architecture(build, calls, architecture, compiler):
    executable = build(SCALE, architecture, compiler=compiler)
    assert executable.listing_kinds == ("ptx", "sass")
    (text,) = executable.listing("ptx", calls.vectors()).values()
    assert ".entry scale(" in text
    assert f".target {architecture}" in text
    assert "\0" not in text


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.usefixtures("tool")
def test_sass_is_that_of_the_binary(build, calls, compiler):
    listings = build(SCALE, compiler=compiler).listing("sass", calls.vectors())
    text = listings["kernel.cu"]
    assert "scale" in text and "STG" in text and "EXIT" in text


@pytest.mark.parametrize("compiler", COMPILERS)
def test_knobs_and_flags_reach_the_ptx(build, calls, compiler):
    source = SCALE.replace("by * x[at]", "x[at] / (by + BLOCK)")
    plain = build(source, compiler=compiler).listing("ptx", calls.vectors())["kernel.cu"]
    other = build(source, knobs={"BLOCK": 256}, compiler=compiler)
    fast = build(source, compiler=compiler, flags=("--use_fast_math",))
    texts = {each.listing("ptx", calls.vectors())["kernel.cu"] for each in (other, fast)}
    assert len({plain, *texts}) == 3


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_kept_binary_is_whole(build, tmp_path, compiler):
    build(SCALE, compiler=compiler)
    (cubin,) = tmp_path.rglob("kernel.cubin")
    content = cubin.read_bytes()
    start, (size, count) = unpack_from("<Q", content, 32)[0], unpack_from("<HH", content, 54)
    assert start + size * count <= len(content)
    assert whole(content) == content
    if start + size * count == len(content):
        assert whole(content[:-1]) == content


def test_a_launch_that_does_not_fit_has_its_figures(build, calls):
    source = SCALE.replace('["BLOCK"]', '["BLOCK"]\n// shared = "BLOCK * 4 * 1024"', 1)
    executable = build(source)
    with pytest.raises(CandidateError, match="use smaller tiles") as caught:
        executable.ahead_of_time(calls.vectors())
    assert caught.value.status is Status.COMPILE_ERROR
    (kernel,) = executable.build.resources["kernels"]
    assert kernel["limits_exceeded"] == ["shared memory: 524288 of 232448 bytes"]


def test_cuda_home_comes_before_tritons_tools(tool, tmp_path, monkeypatch):
    path, _ = tool
    (tmp_path / "bin").mkdir()
    shutil.copy(path, tmp_path / "bin" / "nvdisasm")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert next(listing.disassemblers())[0] == str(tmp_path / "bin" / "nvdisasm")


def test_without_a_disassembler_it_says_where_one_comes_from(build, calls, tmp_path, monkeypatch):
    pytest.importorskip("cupy")  # nvcc finds its host compiler on PATH, which is taken away here
    executable = build(SCALE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(listing, "find_spec", lambda name: None)  # as where there is no triton
    if next(listing.disassemblers(), None):
        pytest.skip("a CUDA toolkit is installed here")
    with pytest.raises(CandidateError, match="pip install triton") as caught:
        executable.listing("sass", calls.vectors())
    assert caught.value.status is Status.UNSUPPORTED
    assert executable.listing("ptx", calls.vectors())
