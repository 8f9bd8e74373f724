"""Every error is one message with its exit code; data goes to stdout and nothing else does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kopt.cli import plugins

Run = Callable[..., Any]
PROBLEM = """
[reference]
function = "double"

[inputs.x]
shape = [64]

[[workloads]]
"""


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A problem folder, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "double"
    folder.mkdir()
    (folder / "problem.toml").write_text(PROBLEM.lstrip())
    (folder / "reference.py").write_text("def double(x):\n    return x + x\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["double", "--max-trials", "0"], "--max-trials: 0 must be above zero"),
        (["double", "--max-time", "0"], "--max-time: '0' must be above zero"),
        (["double", "--max-time", "-5"], "--max-time: '-5' must be above zero"),
        (["double", "--max-usd", "0"], "--max-usd: '0' must be above zero"),
        (["double", "--device", "tpu"], "--device: 'tpu' is no device"),
        (["double", "-o", "width=3"], "-o width=3: not ROLE.NAME.KEY=VALUE"),
        (["double", "-o", "serch.beam.width=3"], "did you mean 'search'?"),
        (["double", "-c", "no.toml"], "no.toml: no such configuration file"),
        (["double", "--backend", "cpp", "--device", "cuda"], "cpp runs on the CPU"),
    ],
)
@pytest.mark.usefixtures("problem")
def test_what_is_wrong_with_optimize_is_said_before_anything_runs(
    kopt: Run, arguments: list[str], message: str
) -> None:
    said = kopt("optimize", *arguments)
    assert (said.code, said.out) == (4, "")
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert not Path(".kopt").exists()


@pytest.mark.usefixtures("problem")
def test_triton_without_a_gpu_is_refused_before_anything_runs(kopt: Run) -> None:
    said = kopt("optimize", "double", "--backend", "triton", "--device", "cpu")
    assert (said.code, said.out) == (5, "")
    assert "cannot be timed without a GPU" in said.err
    assert "--target sm_90" in said.err
    assert "--backend cpp" in said.err
    assert not Path(".kopt").exists()


def test_triton_kernels_are_not_measured_without_a_gpu(kopt: Run, problem: Path) -> None:
    (problem / "k.py").write_text("import triton\ndef kernel_function(x): ...\n")
    (problem / "k.cpp").write_text('extern "C" void f() {}\n')
    said = kopt("measure", problem, problem / "k.py", "--device", "cpu")
    assert (said.code, said.out) == (5, "")
    both = kopt("measure", problem, problem / "k.py", problem / "k.cpp")
    assert both.code == 4
    assert "cannot be compared" in both.err


def test_a_wrong_target_is_refused(kopt: Run, problem: Path) -> None:
    kernel = problem / "k.cpp"
    kernel.write_text('extern "C" void f() {}\n')
    said = kopt("verify", problem, kernel, "--target", "hopper")
    assert (said.code, "write it as sm_90" in said.err) == (4, True)
    said = kopt("verify", problem, kernel, "--target", "sm_90")
    assert (said.code, "this kernel is cpp" in said.err) == (4, True)


@pytest.mark.usefixtures("problem")
def test_a_misspelt_environment_variable_is_an_error(
    kopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPT_MAX_TIEM", "3m")
    said = kopt("optimize", "double")
    assert said.code == 4
    assert "did you mean 'KOPT_MAX_TIME'?" in said.err


def test_a_misspelt_setting_is_named_with_its_line(kopt: Run, problem: Path) -> None:
    (problem / "kopt.toml").write_text("\nmax_tiem = '3m'\n")
    said = kopt("optimize", "double")
    assert said.code == 4
    assert re.search(r"kopt\.toml:2: unknown setting 'max_tiem'; did you mean 'max_time'", said.err)


@pytest.mark.parametrize("arguments", [(), ("config",)])
def test_without_a_verb_there_is_help_and_no_success(kopt: Run, arguments: tuple[str]) -> None:
    said = kopt(*arguments)
    assert (said.code, said.err) == (4, "")
    assert "Usage: kopt" in said.out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("optimise",), "Did you mean 'optimize'?"),
        (("optimize", "x", "--max-tim", "3"), "--max-time"),
        (("optimize",), "PROBLEM"),
    ],
)
def test_usage_errors_hint(kopt: Run, arguments: tuple[str, ...], hint: str) -> None:
    said = kopt(*arguments)
    assert (said.code, said.out) == (4, "")
    assert hint in said.err


def test_help_tells_the_exit_codes_and_no_types_of_flags(kopt: Run) -> None:
    said = kopt("--help")
    assert said.code == 0
    for line in ("0 improved, or the check passed", "5 no usable device"):
        assert line in said.out
    for verb in ("optimize", "resume", "show", "verify", "measure", "init", "plugins", "doctor"):
        assert verb in said.out
        assert "bool" not in kopt(verb, "--help").out
    assert "bool" not in said.out


def test_an_internal_error_is_one_line_unless_more_is_wanted(
    kopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(plugins, "show_plugins", fail)
    said = kopt("plugins")
    assert (said.code, said.out) == (3, "")
    assert said.err == "kopt: internal error: RuntimeError: a bug (kopt -v ... shows where)\n"
    loud = kopt("-v", "plugins")
    assert loud.code == 3
    assert "Traceback" in loud.err


def test_ctrl_c_outside_a_run_is_an_interruption(
    kopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(plugins, "show_plugins", interrupt)
    # A shell starts background jobs, and so this suite perhaps, with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        said = kopt("plugins")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (said.code, said.out, said.err.strip()) == (2, "", "kopt: interrupted")


def test_init_then_a_problem_that_loads(kopt: Run, problem: Path) -> None:
    (problem / "model.py").write_text("def twice(x):\n    return x * 2\n")
    said = kopt("init", f"{problem}/model.py:twice", "-d", "made", "--json")
    assert (said.code, json.loads(said.out)) == (0, {"schema": 1, "problem": "made"})
    again = kopt("init", f"{problem}/model.py:twice", "-d", "made")
    assert again.code == 4
    assert "--force" in again.err
    assert kopt("init", "model.py").code == 4
    loaded = kopt("optimize", "made", "--backend", "triton", "--device", "cpu")
    assert loaded.code == 5  # it got as far as the device


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from kopt.cli.app import main; main(['plugins', '--json'])"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
