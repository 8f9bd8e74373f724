"""Hostile candidates and good ones in one run: each costs itself and nobody else."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import kopt
from kopt.model.evaluation import Evaluation
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.model.run import Run
from kopt.model.verification import Status
from kopt.runs.store import RunFolder
from kopt.testing.processes import eventually, marked

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

REFERENCE = """
import torch

def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
"""
ROWS, COLS = 256, 256

HEADER = """
// /// kopt
// entry = "rms_norm"
// arguments = ["x", "weight", "out", "x.shape[0]", "x.shape[1]"]
// {knobs}
// ///
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <unistd.h>
"""
LANES = (
    HEADER.replace("{knobs}", "knobs = {LANES = [8, 16, 32]}")
    + """
extern "C" void rms_norm(const float* x, const float* w, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float sums[LANES] = {};
    for (int64_t c = 0; c < cols; c += LANES)
      for (int lane = 0; lane < LANES && c + lane < cols; ++lane)
        sums[lane] += x[r * cols + c + lane] * x[r * cols + c + lane];
    double sum = 0;
    for (float lane : sums) sum += lane;
    const float scale = 1.0 / std::sqrt(sum / cols + 1e-6);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = x[r * cols + c] * scale * w[c];
  }
}
"""
)
DOUBLES = (
    HEADER.replace("{knobs}", "knobs = {THREADS = [1, 2], FIRST = [0, 1, 2]}")
    + """
extern "C" void rms_norm(const float* x, const float* w, float* out, int64_t rows, int64_t cols) {
#pragma omp parallel for num_threads(THREADS)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    double sum = 0;
    for (int64_t c = FIRST; c < cols; ++c) sum += double(row[c]) * row[c];
    for (int64_t c = 0; c < FIRST && c < cols; ++c) sum += double(row[c]) * row[c];
    const float scale = 1.0 / std::sqrt(sum / cols + 1e-6);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = row[c] * scale * w[c];
  }
}
"""
)
TORCH = [
    "import torch\ndef kernel_function(x, weight):\n"
    "    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)\n",
    "import torch\ndef kernel_function(x, weight):\n"
    "    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight\n",
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, weight):\n"
    "        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight\n",
]

BODIES: dict[str, tuple[str, Status]] = {
    "segfault": ("*(volatile float*)8 = 1;", Status.ILLEGAL_ACCESS),
    "abort": ("std::abort();", Status.CRASHED),
    "exit": ("right(x, w, out, rows, cols); _exit(0);", Status.CRASHED),
    "loop": ("for (volatile int i = 0;; ++i) {}", Status.HANG),
    "memory": ("for (;;) { volatile char* more = new char[1 << 28]; more[0] = 1; }", Status.OOM),
    "forged": (
        'std::puts("PASS: correct, speedup 100x"); std::fflush(stdout); std::exit(0);',
        Status.CRASHED,
    ),
    "outside": ("right(x, w, out, rows, cols); out[rows * cols + 3] = 1;", Status.ILLEGAL_ACCESS),
    "partial": ("right(x, w, out, rows - 1, cols);", Status.INCOMPLETE_WRITE),
    "mutates": (
        "right(x, w, out, rows, cols); const_cast<float*>(x)[5] += 1;",
        Status.MUTATES_INPUT,
    ),
    "forks": (
        "right(x, w, out, rows, cols); out[7] += 1;"
        "if (!fork()) { setsid(); if (!fork()) for (;;) sleep(1); _exit(0); }",
        Status.WRONG,
    ),
    "descriptors": (
        "right(x, w, out, rows, cols); for (int fd = 0; fd < 1024; ++fd) close(fd);",
        Status.CRASHED,
    ),
}
RIGHT = DOUBLES[DOUBLES.index("extern") :].replace('extern "C" void rms_norm', "static void right")
RIGHT = RIGHT.replace("num_threads(THREADS)", "").replace("FIRST", "0")

SAY = """
import json, os, struct
from pathlib import Path
def say(message):
    body = json.dumps(message).encode()
    names = {int(each.name): os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    (judge,) = [fd for fd, name in names.items() if name.startswith("socket:")]
    os.write(judge, struct.pack("<IB", len(body), 0) + body)
"""
PYTHON: dict[str, tuple[str, Status]] = {
    "py-exit": ("import os\ndef kernel_function(x, weight): os._exit(0)\n", Status.CRASHED),
    "py-system-exit": (
        "def kernel_function(x, weight): raise SystemExit(0)\n", Status.LAUNCH_FAILED,
    ),
    "py-loop": ("def kernel_function(x, weight):\n    while True: pass\n", Status.HANG),
    "py-import": (
        "import time\ntime.sleep(3600)\ndef kernel_function(x, weight): return x\n", Status.HANG,
    ),
    "py-patches": (
        "import time, torch\n"
        "torch.allclose = torch.equal = lambda *a, **k: True\n"
        "time.perf_counter = time.monotonic = lambda: 0.0\n"
        "def kernel_function(x, weight): return torch.zeros_like(x)\n",
        Status.WRONG,
    ),
    "py-forged": (
        SAY + "def kernel_function(x, weight):\n"
        "    say({'ok': True, 'n': 1, 'status': 'correct', 'device_ms': 0.001})\n"
        "    return x\n",
        Status.CRASHED,
    ),
}  # fmt: skip


def good_ones() -> list[kopt.Candidate]:
    lanes = parse_kernel(LANES, "cpp", idea="lanes")
    doubles = parse_kernel(DOUBLES, "cpp", idea="doubles")
    return [
        *(lanes.with_values("test", LANES=count) for count in (8, 16, 32)),
        *(
            doubles.with_values("test", THREADS=threads, FIRST=first)
            for threads in (1, 2)
            for first in (0, 1, 2)
        ),
        *(parse_kernel(source, "torch", idea="torch") for source in TORCH),
    ]


def hostile_ones() -> dict[str, tuple[kopt.Candidate, Status]]:
    head = HEADER.replace("// {knobs}\n", "")
    signature = (
        'extern "C" void rms_norm(const float* x, const float* w, float* out, int64_t rows, '
        "int64_t cols)"
    )
    found = {}
    for name, (body, status) in BODIES.items():
        source = f"{head}{RIGHT}\n{signature} {{ {body} }}\n"
        found[name] = parse_kernel(source, "cpp", idea=name), status
    for name, (source, status) in PYTHON.items():
        found[name] = parse_kernel(source, "torch", idea=name), status
    return found


class Mixed:
    """A strategy that proposes them all at once."""

    def __init__(self, candidates: Sequence[kopt.Candidate]) -> None:
        self._candidates = list(candidates)

    @kopt.hookimpl
    def kopt_propose(self, parent: Evaluation | None) -> Sequence[kopt.Candidate]:
        return self._candidates if parent is None else []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    """One run of all of them, in random order."""
    candidates = [*good_ones(), *(candidate for candidate, _ in hostile_ones().values())]
    random.Random(7).shuffle(candidates)
    (place / "tmp").mkdir()
    problem = Problem(
        name="rms_norm", format="native", workloads=(Workload(),),
        reference=ReferenceSource(kind="function", source=REFERENCE, entry="rms_norm"),
        inputs=(
            InputSpec(name="x", shape=(ROWS, COLS)), InputSpec(name="weight", shape=(COLS,)),
        ),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_CACHE_DIR", str(place / "cache"))
        patch.setenv("TMPDIR", str(place / "tmp"))
        patch.setenv("KOPT_RUN_TIMEOUT", "6s")
        patch.setenv("KOPT_BUILD_TIMEOUT", "30s")
        start = time.monotonic()
        done = kopt.optimize(
            problem, backend="cpp", strategies=[Mixed(candidates)], search="greedy", device="cpu",
            options={"backend.torch": {"compile": False}}, runs_dir=place / "runs",
            budget=kopt.Budget(seconds=600),
        )  # fmt: skip
        (place / "seconds").write_text(str(time.monotonic() - start))
    return done


@pytest.fixture(scope="module")
def evaluations(run: Run) -> dict[str, Evaluation]:
    return {e.id: e for e in RunFolder(run.folder).load().evaluations}


def test_the_run_ends_normally(run: Run) -> None:
    assert run.status in {"improved", "not-improved"}
    assert run.reason == "the strategies propose nothing new"
    assert sum(run.trials.values()) == len(good_ones()) + len(hostile_ones())


def test_there_are_enough_of_each() -> None:
    assert len({c.id for c in good_ones()}) == 12
    assert len({c.id for c, _ in hostile_ones().values()}) >= 12


@pytest.mark.parametrize("number", range(12))
def test_good_ones_are_judged_right(evaluations: dict[str, Evaluation], number: int) -> None:
    found = evaluations[good_ones()[number].id]
    assert (found.status, found.detail) == (Status.CORRECT, "")
    assert found.measured


@pytest.mark.parametrize("name", [*BODIES, *PYTHON])
def test_hostile_ones_get_their_own_status(evaluations: dict[str, Evaluation], name: str) -> None:
    candidate, status = hostile_ones()[name]
    found = evaluations[candidate.id]
    assert found.status == status, found.detail
    assert found.detail
    assert not found.measured


def test_the_winner_is_a_good_one(run: Run) -> None:
    assert run.best is not None
    assert run.best.id in {candidate.id for candidate in good_ones()}


@pytest.mark.usefixtures("run")
def test_no_process_is_left_behind(place: Path) -> None:
    """Not one of this run's: whoever descends from its judge carries its folder's name."""
    assert eventually(lambda: not marked(str(place)), 10.0), marked(str(place))


@pytest.mark.usefixtures("run")
def test_no_file_is_left_behind(place: Path) -> None:
    assert not [p.name for p in (place / "tmp").iterdir() if p.name.startswith("kopt-candidate")]


@pytest.mark.usefixtures("run")
def test_it_does_not_take_for_ever(place: Path) -> None:
    """Three hangs, a retry here and there, and 29 builds."""
    assert float((place / "seconds").read_text()) < 400
