"""Whole runs by the command line against a scripted endpoint: it is down, or kopt is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kopt.metering import FAILURES_TO_STOP
from kopt.runs.events import (
    Asked,
    Confirmed,
    Entry,
    Evaluated,
    Finished,
    ModelStopped,
    Proposed,
    Spent,
    unsettled,
)
from kopt.runs.journal import read_journal
from kopt.testing.caches import shared_cache
from kopt.testing.processes import eventually, marked

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
    "[inputs.x]\nshape = [64, 1024]\n"
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
            **os.environ, "NO_COLOR": "1", "KOPT_CACHE_DIR": str(shared_cache(home)),
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

    def killed(self, server: Any, requests: int, *more: str) -> tuple[Path, tuple[Entry, ...]]:
        """Begin a run, and kill it once so many of its requests are in flight."""
        process = self.start(*self.arguments(*more))
        try:
            assert eventually(lambda: len(server.requests) == requests, 120.0)
            time.sleep(0.5)
            assert process.poll() is None
            assert len(server.requests) == requests
        finally:
            process.kill()
            process.communicate()
        assert eventually(lambda: not marked(str(self.home)), 15.0)
        [folder] = (self.home / "runs").glob("2*")
        return folder, read_journal(folder).entries


@pytest.fixture
def bench(tmp_path: Path, server: Any) -> Bench:
    return Bench(tmp_path, server.url)


def test_the_other_strategy_goes_on_and_its_result_counts(bench: Bench, server: Any) -> None:
    """The model is left alone after a few failures; tuning goes on for rounds, and wins."""
    server.does(server.fails(503, "down for good"))
    ended = bench.optimize(
        "--strategy", "autotune", "-o", "strategy.autotune.kernel=kernel.cpp",
        "-o", "strategy.autotune.batch=2", "-o", "strategy.autotune.patience=100",
        "--strategy", "rewrite",
    )  # fmt: skip
    assert (ended.code, ended.shown["status"]) == (0, "improved"), ended.err
    [stopped] = ended.of(ModelStopped)
    assert "503" in stopped.reason
    assert len(server.requests) == FAILURES_TO_STOP * TRIES
    assert [event.outcome for event in ended.of(Spent)] == ["unavailable"] * FAILURES_TO_STOP
    at = next(n for n, entry in enumerate(ended.entries) if entry.event == stopped)
    later = [entry.event for entry in ended.entries[at:]]
    assert sum(isinstance(event, Proposed) for event in later) > 1
    assert sum(isinstance(event, Evaluated) for event in later) > 1
    strategies = {event.evaluation.candidate.strategy for event in ended.of(Evaluated)}
    assert "rewrite" not in strategies
    confirmed = {event.evaluation.id for event in ended.of(Confirmed) if event.evaluation.measured}
    assert ended.shown["best"]["id"] in confirmed
    assert ended.of(Finished)[-1].status == "improved"
    assert "503" in ended.shown["reason"]
    assert "no longer asked" in re.sub(r"\s+", " ", ended.err)


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


SMALL = (
    "--strategy", "rewrite", "-o", "strategy.rewrite.attempts=3",
    "-o", "strategy.rewrite.code_tokens=2000",
)  # fmt: skip


def most_of(asked: Asked) -> float:
    """What it costs at most, at the prices of the option."""
    return (asked.usage.input_tokens * 2.0 + asked.usage.output_tokens * 10.0) / 1e6


@pytest.mark.parametrize("limited", ["tokens", "usd"])
def test_a_cap_holds_though_the_process_was_killed(bench: Bench, server: Any, limited: str) -> None:
    """Two requests of the most that they may cost were in flight: that much is spent, whoever counts."""
    server.does(server.says("too late", pause=60.0))
    cap = {"tokens": ("--max-tokens", "5000"), "usd": ("--max-usd", "0.03")}[limited]
    folder, entries = bench.killed(server, 2, *SMALL, *cap)
    asked = [entry.event for entry in entries if isinstance(entry.event, Asked)]
    assert not [entry for entry in entries if isinstance(entry.event, Spent)]
    assert [each.usage.output_tokens for each in asked] == [2000, 2000]
    assert [each.usd for each in asked] == [pytest.approx(most_of(each)) for each in asked]
    shown = bench.kopt("show", str(folder)).shown["accounts"]
    assert (len(shown["unsettled"]), shown["rows"]) == (2, [])

    server.does(server.says(f"```cpp\n{KERNEL}```\n"))
    ended = bench.kopt("resume", str(folder))
    assert (ended.code, ended.shown["status"]) == (1, "failed"), ended.err
    assert "nothing was evaluated: budget" in ended.shown["reason"]
    assert len(server.requests) == 2, "nothing more was asked"
    spent = ended.of(Spent)
    assert [event.outcome for event in spent] == ["lost", "lost"]
    assert {event.request for event in spent} == {each.request for each in asked}
    assert ended.shown["spend"]["tokens"] == sum(each.usage.total for each in asked)
    assert ended.shown["spend"]["usd"] == pytest.approx(sum(map(most_of, asked)))
    assert unsettled(entry.event for entry in ended.entries) == ()


def test_what_was_lost_is_counted_once_and_the_run_goes_on(bench: Bench, server: Any) -> None:
    """Killed twice, then seen through: each request that was cut off is in the accounts, once."""
    server.does(server.says("too late", pause=60.0))
    folder, _ = bench.killed(server, 3, *SMALL)
    process = bench.start("resume", str(folder))
    try:
        assert eventually(lambda: len(server.requests) == 6, 120.0)
    finally:
        process.kill()
        process.communicate()
    server.does(server.says(f"```cpp\n{KERNEL}```\n", usage=(700, 300)), server.says("No idea."))
    ended = bench.kopt("resume", str(folder))
    assert (ended.code, ended.shown["status"]) == (0, "improved"), ended.err
    spent = ended.of(Spent)
    lost = [event for event in spent if event.outcome == "lost"]
    assert len(lost) == 6
    assert all(event.usage.estimated and event.usd for event in lost)
    assert ended.shown["spend"]["tokens"] == sum(event.tokens for event in spent)
    assert ended.shown["spend"]["usd"] == pytest.approx(sum(event.usd for event in spent))

    text = bench.start("show", str(folder))
    said, err = text.communicate()
    assert text.returncode == 0, err
    said = re.sub(r"\s+", " ", said)
    assert (
        "6 calls were in flight as kopt's process ended, and counted at the most possible" in said
    )
    assert "6 lost" in said
    assert "without a bill yet" not in said
