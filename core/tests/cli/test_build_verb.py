"""``kopt build`` up to the processes that it starts: what is refused, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kopt.cli.build_verb import with_knobs
from kopt.cli.listing import put_aside, show_listings
from kopt.cli.resource_table import print_resources
from kopt.errors import ConfigError
from kopt.evaluator import Compiled
from kopt.machine import gpu_names
from kopt.model.evaluation import Build
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status

Run = Callable[..., Any]
KERNEL = (
    "// /// kopt\n// [knobs]\n// BLOCK = [128, 256]\n// FAST = [false, true]\n// ///\n"
    'extern "C" void f() {}\n'
)
FITS = {"name": "scale", "registers": 16, "spill_bytes": 0, "shared_bytes": 32}
SPILLS = {"name": "matmul", "registers": 255, "spill_bytes": 96, "shared_bytes": 300000,
          "limits_exceeded": ["shared memory: 300000 of 232448 bytes"]}  # fmt: skip


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A problem folder with kernels in it, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "double"
    folder.mkdir()
    (folder / "problem.toml").write_text(
        '[reference]\nfunction = "double"\n[inputs.x]\nshape = [64]\n[[workloads]]\n'
    )
    (folder / "reference.py").write_text("def double(x):\n    return x + x\n")
    (folder / "k.cpp").write_text(KERNEL)
    (folder / "k.cu").write_text('extern "C" __global__ void f(float *x, float *out) {}\n')
    return folder


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("k.cpp", ["--output", "a.s"], "--output is where a listing goes"),
        ("k.cpp", ["--knob", "BLOCK"], "--knob BLOCK: not NAME=VALUE"),
        ("k.cpp", ["--knob", "TILE=1"], "no such knob; the kernel's knobs: BLOCK, FAST"),
        ("k.cpp", ["--knob", "BLOCK=64"], "not among the choices of BLOCK: 128, 256"),
        ("k.cpp", ["--target", "sm_90"], "this kernel is cpp"),
        ("k.cu", ["--target", "hopper"], "'hopper' is no GPU architecture; write it as sm_90"),
        ("k.cu", ["--target", "native"], "'native' is no GPU architecture"),
        ("k.cu", ["--knob", "BLOCK=64"], "the kernel's knobs: none"),
        ("none.cu", [], "none.cu"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_built(
    kopt: Run, problem: Path, kernel: str, options: list[str], message: str
) -> None:
    said = kopt("build", problem, problem / kernel, *options)
    assert (said.code, said.out) == (4, "")
    assert message in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.skipif(bool(gpu_names()), reason="a GPU is here")
def test_without_a_gpu_a_target_has_to_be_named(kopt: Run, problem: Path) -> None:
    said = kopt("build", problem, problem / "k.cu")
    assert (said.code, said.out) == (4, "")
    assert "no GPU is here to build a cuda kernel for" in said.err
    assert "--target sm_90" in said.err


@pytest.mark.skipif(bool(gpu_names()), reason="a GPU is here")
def test_verify_of_cuda_without_a_gpu_names_what_works_here(kopt: Run, problem: Path) -> None:
    said = kopt("verify", problem, problem / "k.cu")
    assert said.code == 1
    assert "unsupported: cuda kernels run on an NVIDIA GPU only" in said.out
    assert "kopt build PROBLEM KERNEL --target sm_90" in said.out
    assert "interpreter" not in said.out + said.err


def test_knobs_are_read_as_the_kernel_declares_them() -> None:
    candidate = parse_kernel(KERNEL, "cpp")
    chosen = with_knobs(candidate, ["BLOCK=256", "FAST=True"])
    assert chosen.chosen == {"BLOCK": 256, "FAST": True}
    assert with_knobs(candidate, []) is candidate
    with pytest.raises(ConfigError, match="FAST: False, True"):
        with_knobs(candidate, ["FAST=1"])


def compiled(target: str, *kernels: dict[str, Any], **more: Any) -> Compiled:
    return Compiled(target=target, build=Build(backend="b", seconds=0.5), kernels=kernels, **more)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_spills_and_what_exceeds_a_limit_are_in_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = "a block needs [300000] bytes"
    print_resources([
        compiled("sm_80", FITS),
        compiled("sm_90", SPILLS, status=Status.COMPILE_ERROR, fault=fault),
    ])  # fmt: skip
    header, fits, spills, said = rows(capsys.readouterr().out)
    assert header == ["KERNEL", "TARGET", "REGISTERS", "SPILLS", "B", "SHARED", "B", "LIMITS"]
    assert fits == ["scale", "sm_80", "16", "0", "32", "within"]
    assert spills[:5] == ["matmul", "sm_90", "255", "96", "300000"]
    assert " ".join(spills[5:]) == "shared memory: 300000 of 232448 bytes"
    assert " ".join(said) == f"sm_90: compile-error: {fault}"


def test_kernels_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    small = {**FITS, "constants": {"BLOCK": "64"}, "num_warps": 4, "registers": None}
    print_resources([compiled("sm_90", small, {**small, "num_warps": 8})])
    _, first, second = rows(capsys.readouterr().out)
    assert first[:5] == ["scale", "BLOCK=64", "num_warps=4", "sm_90", "?"]
    assert second[:3] == ["scale", "BLOCK=64", "num_warps=8"]


def test_what_a_cpu_backend_reports_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    build = Build(
        backend="cpp", seconds=0.5, resources={"text_bytes": 1292, "functions": 3, "kernels": []}
    )
    print_resources([Compiled(target="native", build=build)])
    header, row = rows(capsys.readouterr().out)
    assert header == ["TARGET", "BACKEND", "TEXT", "B", "FUNCTIONS", "BUILT", "IN"]
    assert row == ["native", "cpp", "1292", "3", "0.5", "s"]


def test_a_listing_has_stdout_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    built = [
        compiled("sm_80", FITS, listings={"scale": "ret;\n\n"}),
        compiled("sm_90", FITS, listings={"scale": "exit;"}),
    ]
    with put_aside():
        print_resources(built)
    show_listings(built, "ptx")
    out, err = capsys.readouterr()
    assert out == "// scale for sm_80\nret;\n\n// scale for sm_90\nexit;\n"
    assert len(rows(err)) == 3


def test_a_listing_can_go_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    built = [compiled("native", listings={"kernel.cpp": "ret"})]
    show_listings(built, "asm", tmp_path / "k.s")
    assert (tmp_path / "k.s").read_text() == "# kernel.cpp for native\nret\n"
    assert capsys.readouterr() == ("", f"asm {tmp_path / 'k.s'}\n")
    show_listings([compiled("sm_90")], "ptx", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match=r"--output .*no: .*; name another file"):
        show_listings(built, "asm", tmp_path / "nowhere" / "no")
