"""A run whose language model is a folder: paused, killed, answered, resumed, shown and replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kopt.runs.events import Entry, Evaluated, Proposed, ReplyRead, Spent
from kopt.runs.journal import read_journal
from kopt.testing.caches import shared_cache
from kopt.testing.processes import eventually, marked

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mailbox-and-replay")]

STRATEGY = '''
"""Asks for two first kernels at a time, and then once for a better one."""

import kopt
from kopt.model.completion import Completion, CompletionRequest, ExpectedCalls, Message
from kopt.model.kernel_file import parse_kernel


def request(problem, task, role, sample=0):
    facts = f"{problem.reference.source}\\n{task}"
    messages = (Message(role="system", content="Answer with C++ alone."),
                Message(role="user", content=facts))
    return CompletionRequest(messages=messages, role=role, sample=sample, purpose=task)


class Asker:
    needs_llm = True

    @kopt.hookimpl
    def kopt_expect(self, problem):
        yield ExpectedCalls(role="code", calls=2, input_tokens=100, output_tokens=400, basis="first")
        yield ExpectedCalls(role="repair", calls=1, input_tokens=200, output_tokens=500)

    @kopt.hookimpl
    def kopt_propose(self, problem, parent, llm):
        if parent is None:
            asked = [request(problem, "a first kernel", "code", sample) for sample in range(2)]
        else:
            asked = [request(problem, "a better kernel", "repair")]
        for each, answer in zip(asked, llm.complete(asked), strict=True):
            if not isinstance(answer, Completion):
                continue
            usable = "extern" in answer.text
            llm.was(each, "candidate" if usable else "refusal", usable=usable)
            if usable:
                yield parse_kernel(answer.text, "cpp", strategy="asker", idea=each.purpose)
'''
NOISY = f'''{STRATEGY.replace("Asker", "Unused")}

import time

from kopt.model.diagnosis import Diagnosis, Profile, metrics_of


class Timer:
    """A profiler whose figures are never twice the same, as measured ones are not."""

    @kopt.hookimpl
    def kopt_profile(self, evaluation):
        metrics = metrics_of({{"latency_us": time.time()}})
        return Profile(profiler="timer", candidate=evaluation.id, metrics=metrics)


class Clock:
    """A judge that asks the model about them, and adds one of its own."""

    @kopt.hookimpl
    def kopt_judge(self, problem, profiles, llm):
        asked = request(problem, f"what of {{profiles[-1].metrics}}", "analysis")
        (answer,) = llm.complete([asked])
        return Diagnosis(judge="clock", bottleneck=f"{{answer.text}} at {{time.time()}}")


class Asker:
    """Names what was measured in every prompt; three candidates are enough for it."""

    @kopt.hookimpl
    def kopt_propose(self, problem, target, history, diagnoses, llm):
        if len(history) < 3:
            facts = f"{{target.device.copy_bandwidth_gb_s}} GB/s, {{diagnoses}}"
            count = 1 if len(history) else 2
            asked = [request(problem, facts, "code", sample) for sample in range(count)]
            for answer in llm.complete(asked):
                yield parse_kernel(answer.text, "cpp", strategy="asker")
'''
"""The same with measured figures in every prompt."""
ENTRY_POINTS = (
    "[kopt.strategy]\nasker = asker_kopt:Asker\n[kopt.judge]\nclock = asker_kopt:Clock\n"
    "[kopt.profiler]\ntimer = asker_kopt:Timer\n"
)
KERNEL = """\
// /// kopt
// entry = "settle"
// arguments = ["x", "out", "x.numel"]
// ///
#include <cstdint>
extern "C" void settle(const float* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    float y[LANES];
    for (int k = 0; k < LANES; ++k) y[k] = x[i + k];
    for (int step = 0; step < 20; ++step)
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
REFERENCE = """\
def settle(x):
    y = x
    for _ in range(20):
        y = y * 0.5 + x
    return y
"""
"""Forty passes over the memory, where a kernel needs one: a gain that stands out of any noise."""
PROBLEM = (
    'name = "small"\n[reference]\nfile = "reference.py"\nfunction = "settle"\n'
    "[inputs.x]\nshape = [64, 1024]\n"
)


class Bench:
    """A folder with a problem, the strategy, a cache, a mailbox and runs of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.runs, self.box = home, home / "runs", home / ".kopt" / "mailbox"
        (home / "problem").mkdir()
        (home / "problem" / "problem.toml").write_text(PROBLEM)
        (home / "problem" / "reference.py").write_text(REFERENCE)
        info = home / "site" / "asker_kopt-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: asker-kopt\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        (home / "site" / "asker_kopt.py").write_text(STRATEGY)
        self.environment = {
            **os.environ, "PYTHONPATH": str(home / "site"), "KOPT_CACHE_DIR": str(shared_cache(home)),
            "NO_COLOR": "1",
        }  # fmt: skip

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kopt", *map(str, arguments)], env=self.environment,
            cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def kopt(self, *arguments: object) -> tuple[int, str, str]:
        """Run the command line; return exit code, stdout and stderr."""
        process = self.start(*arguments)
        out, err = process.communicate()
        return process.returncode, out, err

    def optimize(self, *more: object) -> tuple[object, ...]:
        return (
            "optimize", "problem", "--backend", "cpp", "--device", "cpu", "--search", "greedy",
            "--strategy", "asker", "--runs-dir", self.runs, "-o", "backend.torch.compile=false",
            "-o", "verifier.verify.sanitizers=false", *more,
        )  # fmt: skip

    def letters(self) -> list[Path]:
        """The requests that have no reply."""
        found = sorted(self.box.glob("*.request.md"))
        return [path for path in found if not reply_of(path).exists()]

    def newest(self) -> Path:
        return max(self.runs.glob("2*"), key=lambda path: path.stat().st_mtime_ns)


def reply_of(letter: Path) -> Path:
    return letter.with_name(letter.name.replace(".request.", ".reply."))


def answer(letter: Path, text: str) -> None:
    """Write a reply as the letter says: under another name first."""
    assert str(reply_of(letter)) in letter.read_text()
    part = letter.with_name("part")
    part.write_text(text)
    os.utime(part, (1e9, 1e9))
    part.rename(reply_of(letter))


def kernel(lanes: int) -> str:
    return KERNEL.replace("LANES", str(lanes))


def entries_of(run: Path) -> tuple[Entry, ...]:
    return read_journal(run).entries


def asked(run: Path) -> Counter[str]:
    """How often each request is in the accounts."""
    return Counter(e.event.request for e in entries_of(run) if isinstance(e.event, Spent))


def proposed(run: Path) -> list[tuple[str, str]]:
    """The id and the source of every candidate, in the order of proposals."""
    events = [entry.event for entry in entries_of(run)]
    return [
        (each.id, each.source)
        for event in events if isinstance(event, Proposed) for each in event.candidates
    ]  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("letters"))
    yield made
    assert eventually(lambda: not marked(str(made.home)), 15.0), marked(str(made.home))


@pytest.fixture(scope="module")
def run(bench: Bench) -> Path:
    """A run by mailbox from the first pause to an improvement, with everything that may happen."""
    code, out, err = bench.kopt(*bench.optimize("--llm", "mailbox"))
    path = bench.newest()
    assert code == 2, err
    first = bench.letters()
    assert len(first) == 2  # both are written before the run pauses
    assert "2 of 2 answers have still to be written" in out
    assert f"kopt resume {path.name}" in out
    assert all(str(letter) in out and str(reply_of(letter)) in out for letter in first)
    assert not asked(path)

    answer(first[0], kernel(1))  # one of two: the other is still waited for
    code, out, err = bench.kopt("resume", path)
    assert (code, bench.letters()) == (2, first[1:]), err
    assert "1 of 2 answers" in out
    assert asked(path).total() == 1
    assert not proposed(path)

    answer(first[1], kernel(16))
    code, out, err = bench.kopt("resume", path)
    (letter,) = bench.letters()
    assert code == 2, err
    assert set(asked(path).values()) == {1}
    assert sorted(source for _, source in proposed(path)) == sorted([kernel(1), kernel(16)])

    answer(letter, kernel(32))
    code, out, err = bench.kopt("resume", path, "--json")
    assert code == 0, err
    assert json.loads(out)["status"] == "improved"
    return path


def test_a_run_by_letters_improves_and_asks_nothing_twice(run: Path, bench: Bench) -> None:
    assert not bench.letters()
    assert len(list(bench.box.glob("*.reply.md"))) == 3  # the pairs are kept
    assert list(asked(run).values()) == [1, 1, 1]
    evaluated = [e.event.evaluation for e in entries_of(run) if isinstance(e.event, Evaluated)]
    assert [str(each.status) for each in evaluated] == ["correct"] * 3
    assert {each.candidate.source for each in evaluated} == {kernel(n) for n in (1, 16, 32)}
    code, _, err = bench.kopt("resume", run)
    assert (code, "has ended (improved" in err) == (4, True)


def test_the_run_shows_its_accounts(run: Path, bench: Bench) -> None:
    code, out, err = bench.kopt("show", run)
    assert code == 0, err
    rows = {line.split()[0]: line for line in out.splitlines() if " unknown " in f"{line} "}
    assert set(rows) == {"code", "repair", "all"}
    assert rows["code"].endswith("a first kernel")
    assert rows["code"].split()[1] == "2"
    _, out, _ = bench.kopt("show", run, "--json")
    accounts = json.loads(out)["accounts"]
    assert accounts["models"] == ["mailbox"]
    assert (accounts["total"]["calls"], accounts["total"]["usd"]) == (3, None)
    assert accounts["total"]["replies"] == {"candidate": 3}
    assert accounts["total"]["tokens"] == json.loads(out)["spend"]["tokens"] > 0


def replayed(bench: Bench, folder: Path, *more: object) -> tuple[int, dict[str, Any], Path]:
    options = ("--llm", "replay", "-o", f"llm.replay.folder={folder}", *more)
    code, out, err = bench.kopt(*bench.optimize(*options, "--json"))
    assert out, err
    shown = json.loads(out)
    return code, shown, Path(shown["folder"])


def test_a_replay_gives_the_same_candidates(run: Path, bench: Bench) -> None:
    fixture = bench.home / "fixture"
    shutil.copytree(run / "completions", fixture)
    code, shown, path = replayed(bench, fixture, "--max-usd", "1")
    assert (code, shown["status"]) == (0, "improved")
    assert proposed(path) == proposed(run)
    events = [entry.event for entry in entries_of(path)]
    spent = [event for event in events if isinstance(event, Spent)]
    assert [event.usd for event in spent] == [0.0] * 3
    assert {event.model for event in spent} == {"replay of mailbox"}
    recorded = [e.event for e in entries_of(run) if isinstance(e.event, Spent)]
    assert sum(e.tokens for e in spent) == sum(e.tokens for e in recorded) > 0
    assert all(event.usable for event in events if isinstance(event, ReplyRead))


def test_a_replay_of_other_prompts(run: Path, bench: Bench) -> None:
    """A changed prompt fits no recording, is told so, and may be answered in order."""
    module = bench.home / "site" / "asker_kopt.py"
    module.write_text(STRATEGY.replace("Answer with C++ alone.", "Answer with one C++ file."))
    try:
        code, shown, path = replayed(bench, run)
        assert (code, shown["status"]) == (1, "failed")
        failures = [e.event for e in entries_of(path) if isinstance(e.event, Spent)]
        assert {failure.outcome for failure in failures} == {"invalid"}
        said = "message 1 (system), line 1: 'Answer with C++ alone.' recorded, 'Answer with one"
        assert all(said in failure.detail for failure in failures)
        code, shown, path = replayed(bench, run, "-o", "llm.replay.match=order")
        assert (code, shown["status"]) == (0, "improved")
        assert sorted(s for _, s in proposed(path)) == sorted(s for _, s in proposed(run))
    finally:
        module.write_text(STRATEGY)


def test_a_folder_without_recordings_is_refused_before_the_run(bench: Bench) -> None:
    before = len(list(bench.runs.glob("2*")))
    options = ("--llm", "replay", "-o", "llm.replay.folder=nowhere")
    code, out, err = bench.kopt(*bench.optimize(*options))
    assert code == 5
    assert out == ""
    assert "nowhere is not there" in err
    assert len(list(bench.runs.glob("2*"))) == before


def test_a_kill_while_a_reply_is_waited_for(bench: Bench, run: Path) -> None:
    box = bench.home / "other box"
    options = ("--llm", "mailbox", "-o", f"llm.mailbox.folder={box}", "-o", "llm.mailbox.wait=10m")
    process = bench.start(*bench.optimize(*options, "--json"))
    assert eventually(lambda: len(list(box.glob("*.request.md"))) == 2, 120.0)
    path = bench.newest()
    letters = sorted(box.glob("*.request.md"))
    answer(letters[0], kernel(2))  # one is answered and paid for, the other is waited for
    assert eventually(lambda: asked(path).total() == 1, 30.0)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert eventually(lambda: not marked(str(bench.home)), 15.0)

    process = bench.start("resume", path, "--json")
    answer(letters[1], kernel(4))
    assert eventually(lambda: len(list(box.glob("*.request.md"))) == 3, 120.0)
    assert process.poll() is None
    (letter,) = set(box.glob("*.request.md")) - set(letters)
    answer(letter, "I would rather not.")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["status"] == "improved"
    assert list(asked(path).values()) == [1, 1, 1]
    reads = [e.event for e in entries_of(path) if isinstance(e.event, ReplyRead)]
    assert [read.usable for read in reads if read.outcome == "refusal"] == [False]
    _, shown, _ = bench.kopt("show", path)
    assert "1 (1 refusal)" in shown


def test_what_a_run_would_ask_is_estimated(bench: Bench, run: Path) -> None:
    verb = ("estimate", *bench.optimize()[1:])
    code, out, err = bench.kopt(*verb, "--llm", "mailbox", "--max-tokens", "1000")
    assert code == 0, err
    assert "price unknown" in out
    assert "--max-tokens 1,000: ends the asking after about 1 of 3 calls" in out
    replay = ("--llm", "replay", "-o", f"llm.replay.folder={run}", "--max-usd", "2", "--json")
    code, out, err = bench.kopt(*verb, *replay)
    assert code == 0, err
    found = json.loads(out)
    assert [(r["role"], r["calls"], r["usd"]) for r in found["requests"]] == [
        ("code", 2, 0.0), ("repair", 1, 0.0),
    ]  # fmt: skip
    assert found["total"] == {"calls": 3, "tokens": 1700, "usd": 0.0}
    assert found["limits"] == {"usd": {"limit": 2.0, "share": 1.0}}
    code, out, err = bench.kopt(*verb, "--llm", "mailbox", "--max-usd", "1")
    assert code == 1
    assert "nobody knows what this language model costs" in out
    code, out, err = bench.kopt(*verb)
    assert (code, out) == (4, "")
    assert "needs a language model" in err
    assert not bench.letters()


def test_a_resumed_run_asks_alike_though_it_measures_again(bench: Bench) -> None:
    """Prompts hold bandwidths, profiles and diagnoses; a pause must not make others of them."""
    module = bench.home / "site" / "asker_kopt.py"
    module.write_text(NOISY)
    box = bench.home / "third box"
    options = ("--llm", "mailbox", "-o", f"llm.mailbox.folder={box}")
    asking = bench.optimize(*options, "--judge", "clock", "--profiler", "timer")
    try:
        code, _, err = bench.kopt(*asking)
        path = bench.newest()
        resumes = 0
        while code == 2 and resumes < 6:
            for letter in [
                each for each in box.glob("*.request.md") if not reply_of(each).exists()
            ]:
                opinion = "role: analysis" in letter.read_text()
                # The third kernel is several times as fast, on a busy machine too: it is asked about.
                lanes = (1, 2, 32)[min(len(list(box.glob("*.reply.md"))), 2)]
                answer(letter, "memory" if opinion else kernel(lanes))
            resumes += 1
            code, _, err = bench.kopt("resume", path)
        assert code == 0, err
    finally:
        module.write_text(STRATEGY)
    assert resumes == 4  # two kernels at a time, an opinion, a kernel, and the last opinion
    roles = Counter(e.event.role for e in entries_of(path) if isinstance(e.event, Spent))
    assert roles == {"code": 3, "analysis": 2}
    assert len(list(box.glob("*.request.md"))) == 5
