"""Whole runs by the command line against a scripted endpoint that is down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kopt.metering import FAILURES_TO_STOP
from kopt.runs.events import Entry, Evaluated, ModelStopped, Proposed
from kopt.runs.journal import read_journal

pytest.importorskip("kopt_torch")
pytest.importorskip("kopt_cpp")
pytest.importorskip("kopt_rewrite")
pytest.importorskip("kopt_autotune")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("whole-runs")]

TRIES = 2
"""Of each request: the first and one more."""
PRICES = "llm.openai.prices={m = {input = 2.0, output = 10.0}}"
REFERENCE = """\
def settle(x):
    y = x
    for _ in range(20):
        y = y * 0.5 + x
    return y
"""
"""Forty passes over the memory, where a kernel needs one: a gain that stands out of any noise."""
PROBLEM = (
    'name = "settle"\n[reference]\nfile = "reference.py"\nfunction = "settle"\n'
    "[inputs.x]\nshape = [512, 1024]\n"
)
KERNEL = """\
// /// kopt
// entry = "settle"
// arguments = ["x", "out", "x.numel"]
// [knobs]
// LANES = [4, 8, 16, 32, 64]
// UNROLL = [1, 2, 4]
// ///
#include <cstdint>
extern "C" void settle(const float* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    float y[LANES];
    for (int k = 0; k < LANES; ++k) y[k] = x[i + k];
    for (int step = 0; step < 20 / UNROLL; ++step)
      for (int again = 0; again < UNROLL; ++again)
        for (int k = 0; k < LANES; ++k) y[k] = y[k] * 0.5f + x[i + k];
    for (int k = 0; k < LANES; ++k) out[i + k] = y[k];
  }
  for (; i < n; ++i) {
    float y = x[i];
    for (int step = 0; step < 20; ++step) y = y * 0.5f + x[i];
    out[i] = y;
  }
}
"""


class Ended(NamedTuple):
    """What a command said, and the run that it left."""

    code: int
    shown: dict[str, Any]
    err: str
    entries: tuple[Entry, ...]

    def of(self, kind: type) -> list[Any]:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]


class Bench:
    """A folder with a problem, a kernel and runs; the endpoint is the test's."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        (home / "problem").mkdir()
        (home / "problem" / "problem.toml").write_text(PROBLEM)
        (home / "problem" / "reference.py").write_text(REFERENCE)
        (home / "kernel.cpp").write_text(KERNEL)
        (home / "tmp").mkdir()
        self.environment = {
            **os.environ, "NO_COLOR": "1", "KOPT_CACHE_DIR": str(home / "cache"),
            "TMPDIR": str(home / "tmp"),
        }  # fmt: skip

    def optimize(self, *more: str) -> Ended:
        return self.kopt(*self.arguments(*more))

    def arguments(self, *more: str) -> tuple[str, ...]:
        return (
            "optimize", "problem", "--backend", "cpp", "--device", "cpu", "--search", "greedy",
            "--runs-dir", "runs", "-o", "backend.torch.compile=false",
            "-o", "verifier.verify.sanitizers=false", "--llm", "openai",
            "-o", f"llm.openai.base_url={self.url}", "-o", "llm.openai.model=m",
            "-o", PRICES, "-o", f"llm.openai.retries={TRIES - 1}",
            "-o", "llm.openai.backoff_seconds=0.01", *more,
        )  # fmt: skip

    def kopt(self, *arguments: str) -> Ended:
        process = self.start(*arguments, "--json")
        out, err = process.communicate()
        assert out, err
        shown = json.loads(out)
        return Ended(process.returncode, shown, err, read_journal(Path(shown["folder"])).entries)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kopt", *arguments], env=self.environment, cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path, server: Any) -> Bench:
    return Bench(tmp_path, server.url)


def test_without_another_strategy_the_run_can_be_resumed(bench: Bench, server: Any) -> None:
    """It ends at once, with what to do next; resumed with the endpoint back it finds a kernel."""
    server.does(server.fails(503, "down for good"))
    ended = bench.optimize("--strategy", "rewrite", "-o", "strategy.rewrite.attempts=3")
    assert (ended.code, ended.shown["status"]) == (2, "interrupted"), ended.err
    assert "503" in ended.shown["reason"]
    assert "kopt resume" in ended.shown["reason"]
    assert len(server.requests) == FAILURES_TO_STOP * TRIES
    assert not ended.of(Proposed)
    assert len(ended.of(ModelStopped)) == 1

    again = bench.kopt("resume", ended.shown["folder"])
    assert (again.code, again.shown["status"]) == (2, "interrupted"), again.err
    assert len(server.requests) == 2 * FAILURES_TO_STOP * TRIES

    server.does(server.says(f"```cpp\n{KERNEL}```\n"), server.says("I have no idea."))
    back = bench.kopt("resume", ended.shown["folder"])
    assert (back.code, back.shown["status"]) == (0, "improved"), back.err
    assert {event.evaluation.candidate.strategy for event in back.of(Evaluated)} == {"rewrite"}
    assert back.shown["folder"] == ended.shown["folder"]
