"""Suites for real: the problems that kopt brings along are traced, and a small suite is run, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kopt.model.work import work_of
from kopt.runs.events import Opened
from kopt.runs.journal import read_journal
from kopt.suites.kernelbench import kernelbench_suite
from kopt.suites.own import own_suite
from kopt.suites.records import read_suite
from kopt.testing.caches import shared_cache
from kopt.testing.processes import eventually, marked

torch = pytest.importorskip("torch")
pytest.importorskip("kopt_torch")

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, eps):
        super(Model, self).__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.register_buffer("shift", torch.rand(width))
        self.eps = eps

    def forward(self, x, index):
        mean = x.pow(2).mean(-1, keepdim=True)
        return (x * torch.rsqrt(mean + self.eps) * self.scale + self.shift)[index]


def get_inputs():
    return [torch.randn(ROWS, 256), torch.arange(ROWS)]


def get_init_inputs():
    return [256, 1e-5]
"""
NORM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return EXPRESSION


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
"""


def tree(root: Path, **files: str) -> Path:
    """Write a level of a made-up checkout; ``p1_Name`` becomes ``1_Name.py``."""
    folder = root / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name.removeprefix('p')}.py").write_text(text)
    return root


# --- the problems that kopt brings along --------------------------------------------------------


def table4_bytes() -> dict[str, int]:
    """Inputs read and results written once, two bytes an element (labels eight)."""
    found: dict[str, int] = {}
    for n in (2048, 4096, 8192):
        found[f"matmul-{n}x{n}x{n}"] = 3 * n * n * 2
    for rows, cols in ((4096, 4096), (8192, 8192)):
        found[f"softmax-{rows}x{cols}"] = 2 * rows * cols * 2
    for rows, cols in ((4096, 5120), (8192, 4096)):
        found[f"layernorm-{rows}x{cols}"] = 2 * rows * cols * 2 + 2 * cols * 2
    for rows, cols in ((4096, 4096), (8192, 4096), (8192, 8192)):
        found[f"rmsnorm-{rows}x{cols}"] = 2 * rows * cols * 2 + cols * 2
    for rows in (4096, 8192):
        found[f"cross_entropy-{rows}x32000"] = rows * 32000 * 2 + rows * 8 + 2
    for rows, cols in ((8192, 8192), (16384, 4096)):
        found[f"reduce-{rows}x{cols}"] = rows * cols * 2 + rows * 2
    for length in (2048, 4096):
        found[f"rotary-2x32x{length}x128"] = 2 * 2 * 32 * length * 128 * 2 + 2 * length * 64 * 2
    return found


SHOWCASE_BYTES = {
    "matrix_vector": (2048 * 1048576 + 1048576 + 2048) * 2,
    "rms_norm": 2 * 112 * 64 * 512 * 512 * 2,
    # (128 + 2 * 1 - 3 * (3 - 1) - 1) // 2 + 1 = 62 positions along each axis.
    "max_pool_3d": 16 * 32 * (128**3 + 62**3) * 2,
    # (n - 1) * 2 - 2 * 1 + 2 * (3 - 1) + 1: 33 from 16, and 65 from 32.
    "transposed_conv_3d": (16 * 32 * 16 * 32 * 32 + 32 * 64 * 27 + 16 * 64 * 33 * 65 * 65) * 2,
    "depthwise_conv_2d": (16 * 64 * 512 * 512 + 64 * 9 + 16 * 64 * 510 * 510) * 2,
}


@pytest.mark.parametrize(
    ("name", "nbytes"), [("table4", table4_bytes()), ("showcase", SHOWCASE_BYTES)]
)
def test_own_problems_at_full_size(name: str, nbytes: dict[str, int]) -> None:
    """Traced by shapes, so that no memory is taken."""
    from kopt_torch.shapes import signature_by_shapes

    suite = own_suite(name)
    assert [each.name for each in suite.problems] == list(nbytes)
    for each in suite.problems:
        first = signature_by_shapes(each.load()).first
        assert first.trace, each.name
        assert first.compulsory_bytes == nbytes[each.name], each.name
        assert work_of(first).compulsory_bytes == nbytes[each.name], each.name
        assert {out.dtype for out in first.outputs} == {suite.dtype}, each.name


def test_flops_of_the_products_and_convolutions() -> None:
    from kopt_torch.shapes import signature_by_shapes

    flops = {
        each.name: work_of(signature_by_shapes(each.load()).first).matrix_flops
        for suite in map(own_suite, ("table4", "showcase"))
        for each in suite.problems
    }
    assert flops["matmul-4096x4096x4096"] == 2 * 4096**3
    assert flops["matrix_vector"] == 2 * 2048 * 1048576
    assert flops["depthwise_conv_2d"] == 2 * 9 * 16 * 64 * 510 * 510
    assert flops["softmax-4096x4096"] == 0


# --- a derived problem --------------------------------------------------------------------------


def test_bfloat16_is_what_a_user_would_have(tmp_path: Path) -> None:
    """The derived file against its module and inputs cast by hand; labels stay integers."""
    from kopt_torch.shapes import signature_by_shapes
    from kopt_torch.source import ReferenceFunction

    root = tree(tmp_path, p1_Norm=FILE.replace("ROWS", "64"))
    problem = kernelbench_suite(root, 1, "bfloat16").problems[0].load()
    first = signature_by_shapes(problem).first
    assert {a.name: a.tensor.dtype for a in first.arguments if a.tensor} == {
        "x": "bfloat16", "index": "int64", "scale": "bfloat16", "shift": "bfloat16",
    }  # fmt: skip
    assert [out.dtype for out in first.outputs] == ["bfloat16"]

    plain: dict[str, Any] = {"__name__": "plain"}
    exec(FILE.replace("ROWS", "64"), plain)
    function = ReferenceFunction(problem, "cpu")
    assert function.get_inputs is not None
    torch.manual_seed(3)
    x, index = function.get_inputs()
    torch.manual_seed(3)
    by_hand = plain["get_inputs"]()[0].to(torch.bfloat16)
    assert torch.equal(x, by_hand)
    torch.manual_seed(0)  # as kopt makes the module
    module = plain["Model"](256, 1e-5).to(torch.bfloat16)
    assert torch.equal(function([x, index], {}, function.state), module(by_hand, index))


# --- a suite that is run ------------------------------------------------------------------------


class Runs:
    """``kopt suite run`` on a made-up tree, in processes of a folder of their own."""

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / "record.json"
        root = tree(
            home / "checkout",
            p1_Softmax=NORM.replace("EXPRESSION", "torch.softmax(x, dim=-1)"),
            p2_Constant=NORM.replace("EXPRESSION", "undefined_name(x)"),
        )
        (home / "tmp").mkdir()
        self.environment = {
            **os.environ, "KOPT_CACHE_DIR": str(shared_cache(home)), "TMPDIR": str(home / "tmp"),
            "NO_COLOR": "1",
        }  # fmt: skip
        self.command = [
            sys.executable, "-m", "kopt", "suite", "run", "kernelbench", "--root", str(root),
            "--device", "cpu", "--backend", "cpp", "--max-trials", "1", "--time-per-problem", "3m",
            "--option", "backend.torch.compile=false",
            "--option", "verifier.verify.sanitizers=false", "-o", str(self.file), "--json",
        ]  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *more], cwd=self.home, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *more: str) -> tuple[int, dict[str, Any], str]:
        process = self.start(*more)
        out, err = process.communicate(timeout=600)
        return process.returncode, json.loads(out) if out.strip() else {}, err

    def opened(self) -> list[Path]:
        """The runs that have opened their problem."""
        return [
            path.parent for path in self.home.glob(".kopt/suites/*/*/journal.jsonl")
            if path.read_bytes().count(b"\n")
        ]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("suite"))


@pytest.mark.slow
def test_a_small_suite_killed_and_gone_on_with(runs: Runs) -> None:
    pytest.importorskip("kopt_cpp")
    killed = runs.start("--ids", "1-2")
    deadline = time.monotonic() + 300
    while not runs.opened():
        assert killed.poll() is None, killed.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert read_suite(runs.file).rows == ()
    assert eventually(lambda: not marked(str(runs.home)), 15.0), "the judge lives on"
    [left] = runs.opened()

    code, shown, err = runs.run("--ids", "1-2")
    assert code == 1, err  # the second problem has no answer
    one, two = read_suite(runs.file).rows
    assert (one.run, one.name) == (left.name, "1_Softmax")
    openings = [e for e in read_journal(left).entries if isinstance(e.event, Opened)]
    assert len(openings) == 2, "the run was gone on with, not begun anew"
    assert one.verdict in {"improved", "baseline"}  # so small a problem may go either way
    assert one.count == 1
    assert one.chosen is not None
    assert one.eager_ms is not None and one.kopt_ms is not None
    assert (one.verdict == "improved") == (one.speedup["best"].low > 1.0)
    if one.verdict == "improved":
        assert set(one.stages.values()) <= {"pass", "not run"}
        assert one.chosen.source.startswith("// /// kopt")
    else:
        assert one.speedup["best"].median == 1.0
    assert (two.verdict, two.run) == ("failed", "")
    assert "undefined_name" in two.reason
    assert [row["id"] for row in shown["rows"]] == ["1", "2"]
    assert shown["summary"]["failed"] == 1
    assert shown["summary"]["over"]["eager"]["count"] == 1
    assert "torch.compile" not in shown["summary"]["over"]
    assert "[2/2] 2 2_Constant" in err


@pytest.mark.slow
def test_problems_beside_each_other_are_interrupted_and_gone_on_with(tmp_path: Path) -> None:
    pytest.importorskip("kopt_cpp")
    runs = Runs(tmp_path)
    started = runs.start("--ids", "1-2", "--jobs", "2")
    deadline = time.monotonic() + 300
    while not runs.opened():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=120)
    assert started.returncode == 2, err
    assert eventually(lambda: not marked(str(tmp_path)), 15.0), "a child or a judge lives on"

    code, shown, err = runs.run("--ids", "1-2", "--jobs", "2")
    assert code == 1, err  # the second problem has no answer
    assert [row["verdict"] for row in shown["rows"]][1] == "failed"
    assert shown["rows"][0]["verdict"] in {"improved", "baseline"}
    assert "1_Softmax: " in err
