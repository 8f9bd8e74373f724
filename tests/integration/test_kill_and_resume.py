"""Runs that are killed, interrupted, moved and damaged: what was found out is neither lost nor doubled."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.runs.events import Confirmed, Entry, Evaluated, Opened, Proposed
from kopt.runs.journal import FILE_NAME, read_journal
from kopt.runs.state import RunState
from kopt.runs.store import RunFolder
from kopt.testing.processes import eventually, marked

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kill-and-resume")]

KILLS = int(os.environ.get("KOPT_TEST_KILLS", "8"))
"""Each takes some 8 s on two cores; set the variable to 30 or more before a release."""
BATCH = 2
"""Candidates that may be in flight."""

PLUGINS = '''
import os
from pathlib import Path

import kopt
from kopt.model.kernel_file import parse_kernel

SOURCE = """
// /// kopt
// entry = "rms_norm"
// arguments = ["x", "weight", "out", "x.shape[0]", "x.shape[1]"]
// ///
#include <cmath>
#include <cstdint>
extern "C" void rms_norm(const float* x, const float* w, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    double sum = 0;
    for (int64_t c = NUMBER; c < cols; ++c) sum += double(row[c]) * row[c];
    for (int64_t c = 0; c < NUMBER && c < cols; ++c) sum += double(row[c]) * row[c];
    const float scale = 1.0 / std::sqrt(sum / cols + 1e-6);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = row[c] * scale * w[c];
  }
}
"""


class Variants:
    """A strategy: four of its variants a round."""

    class Options(kopt.Options):
        count: int = 20

    def __init__(self, options):
        self.options = options

    @kopt.hookimpl
    def kopt_propose(self, history):
        first = len(history)
        for number in range(first, min(first + 4, self.options.count)):
            yield parse_kernel(SOURCE.replace("NUMBER", str(number)), "cpp", idea=str(number))


class Witness:
    """A verifier without an opinion: it writes down whom it was asked about."""

    @kopt.hookimpl
    def kopt_verify(self, trial):
        with open(os.environ["WITNESS"], "a") as log:
            log.write(f"{trial.candidate.language} {trial.depth} {trial.candidate.id}\\n")
'''
ENTRY_POINTS = (
    "[kopt.strategy]\nvariants = variants_kopt:Variants\n"
    "[kopt.verifier]\nwitness = variants_kopt:Witness\n"
)
REFERENCE = (
    "import torch\n\ndef rms_norm(x, weight):\n"
    "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight\n"
)
PROBLEM = (
    'name = "small"\n[reference]\nfile = "reference.py"\nfunction = "rms_norm"\n'
    "[inputs.x]\nshape = [128, 256]\n[inputs.weight]\nshape = [256]\n"
)


@dataclass
class Watch:
    """What was seen of a session process while it ran."""

    most_bytes: int = 0
    libraries: set[str] = field(default_factory=set)

    def look(self, process: psutil.Process) -> None:
        try:
            self.most_bytes = max(self.most_bytes, process.memory_info().rss)
            names = {Path(each.path).name for each in process.memory_maps()}
        except psutil.Error:
            return  # it has ended
        self.libraries |= {name for name in names if "torch" in name or "triton" in name}


class Bench:
    """A folder with a problem, plugins, a cache and runs of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.runs, self.cache = home, home / "runs", home / "cache"
        self.witness = home / "witness"
        self.watch = Watch()
        (home / "tmp").mkdir()
        (home / "problem").mkdir()
        (home / "problem" / "problem.toml").write_text(PROBLEM)
        (home / "problem" / "reference.py").write_text(REFERENCE)
        info = home / "site" / "variants_kopt-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: variants-kopt\nVersion: 0.1.0\n"
        )
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        (home / "site" / "variants_kopt.py").write_text(PLUGINS)
        self.environment = {
            **os.environ, "PYTHONPATH": str(home / "site"), "KOPT_CACHE_DIR": str(self.cache),
            "TMPDIR": str(home / "tmp"), "WITNESS": str(self.witness), "NO_COLOR": "1",
        }  # fmt: skip

    def optimize(self, count: int) -> subprocess.Popen[str]:
        """Start a run over ``count`` variants."""
        return self.start(
            "optimize", str(self.home / "problem"), "--backend", "cpp", "--device", "cpu",
            "-o", "verifier.verify.sanitizers=false",
            "--strategy", "variants", "--search", "greedy", "--verifier", "verify",
            "--verifier", "witness", "--build-workers", str(BATCH), "--max-time", "30m",
            "-o", f"strategy.variants.count={count}", "-o", "backend.torch.compile=false",
            "--runs-dir", str(self.runs), "--json",
        )  # fmt: skip

    def resume(self, run: Path) -> subprocess.Popen[str]:
        return self.start("resume", str(run), "--json")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kopt", *arguments], env=self.environment, cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
        """Wait for the end; return exit code, the JSON on stdout, and stderr."""
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            self.watch.look(seen)
            time.sleep(0.1)
        out, err = process.communicate()
        return process.returncode, json.loads(out) if out.strip() else {}, err

    def unfinished(self) -> Path | None:
        """Return the run that can be gone on with, if there is one."""
        found = [path for path in self.runs.glob("*") if (path / "run.json").exists()]
        return next((path for path in found if resumable(RunFolder(path).load())), None)


def resumable(state: RunState) -> bool:
    return state.finished is None or state.finished.status == "interrupted"


def lines_of(run: Path | None) -> int:
    path = None if run is None else run / FILE_NAME
    return path.read_bytes().count(b"\n") if path is not None and path.exists() else 0


def entries_of(run: Path) -> tuple[Entry, ...]:
    return read_journal(run).entries


def evaluated_ids(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.event.evaluation.id for entry in entries if isinstance(entry.event, Evaluated)]


def ranked(state: RunState) -> list[str]:
    assert state.opening is not None
    history = History(state.evaluations, baseline=state.opening.fastest)
    return [evaluation.id for evaluation in history.ranked()]


def winner(confirmed: list[Evaluation]) -> str:
    """The first confirmed one that beats every baseline, else the first that holds."""
    held = [e for e in confirmed if e.measurement is not None]
    better = [
        e for e in held if e.measurement and all(map(e.measurement.beats, e.measurement.speedup))
    ]
    return (better or held)[0].id


def confirmations(entries: tuple[Entry, ...]) -> list[Evaluation]:
    """Return what was confirmed since the run was opened last."""
    last = max(i for i, entry in enumerate(entries) if isinstance(entry.event, Opened))
    return [e.event.evaluation for e in entries[last:] if isinstance(e.event, Confirmed)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("resume"))
    yield made
    assert eventually(lambda: not marked(str(made.home)), 15.0), marked(str(made.home))


# --- kill -9 -------------------------------------------------------------------------------------


def moment(chance: random.Random, number: int) -> Callable[[Path | None, float, int], bool]:
    """Return when to kill: at a random time, or shortly after a random number of new lines."""
    if number % 5 < 3:
        at = chance.uniform(0.2, 7.0)
        return lambda run, seconds, lines: seconds >= at
    wanted, delay = chance.randint(1, 5), chance.uniform(0.0, 0.6)
    reached: list[float] = []

    def due(run: Path | None, seconds: float, lines: int) -> bool:
        if not reached and lines >= wanted:
            reached.append(seconds)
        return bool(reached) and seconds >= reached[0] + delay

    return due


def run_until_killed(bench: Bench, due: Callable[[Path | None, float, int], bool]) -> bool:
    """Start or resume, and kill when it is due; False where it had finished before."""
    run = bench.unfinished()
    before = lines_of(run)
    process = bench.optimize(44) if run is None else bench.resume(run)
    start = time.monotonic()
    while process.poll() is None:
        run = run or bench.unfinished()
        if due(run, time.monotonic() - start, lines_of(run) - before):
            process.kill()
            process.communicate()
            return True
        time.sleep(0.01)
    _, err = process.communicate()
    assert process.returncode in {0, 1}, err
    return False


def check_entries(entries: tuple[Entry, ...]) -> None:
    """No doubled evaluation or proposal; trials and seconds only grow, trials by one each."""
    ids = evaluated_ids(entries)
    assert len(set(ids)) == len(ids)
    proposed = [c.id for e in entries if isinstance(e.event, Proposed) for c in e.event.candidates]
    assert len(set(proposed)) == len(proposed)
    assert set(ids) <= set(proposed)
    seconds = [entry.spend.seconds for entry in entries]
    assert seconds == sorted(seconds)
    done = 0
    for entry in entries:
        done += isinstance(entry.event, Evaluated)
        assert entry.spend.trials == done


def witnessed(bench: Bench) -> list[str]:
    """Return the ids of C++ candidates in the order in which their verification began."""
    if not bench.witness.exists():
        return []
    rows = [line.split() for line in bench.witness.read_text().splitlines()]
    return [row[2] for row in rows if row[:2] == ["cpp", "search"]]


def test_kills_at_random_moments(bench: Bench) -> None:
    chance = random.Random(2024)
    known: dict[Path, list[str]] = {}
    kills = repeated = 0
    while kills < KILLS:
        seen = len(witnessed(bench))
        done = {each for ids in known.values() for each in ids}
        if not run_until_killed(bench, moment(chance, kills)):
            known = {}  # a new run begins, and evaluates the same variants anew
            bench.witness.unlink()
            continue
        kills += 1
        assert eventually(lambda: not marked(str(bench.home)), 15.0), "the judge lives on"
        run = bench.unfinished()
        begun = witnessed(bench)[seen:]
        assert not set(begun) & done, "an evaluation that was in the journal was repeated"
        if run is None:
            assert not begun
            continue
        entries = entries_of(run)
        check_entries(entries)
        ids = evaluated_ids(entries)
        assert ids[: len(known.get(run, []))] == known.get(run, []), "an evaluation was lost"
        fresh = set(ids) - set(known.get(run, []))
        lost = [each for each in begun if each not in fresh]
        assert len(lost) <= BATCH
        repeated += len(lost)
        known[run] = ids
    run = bench.unfinished()
    assert run is not None
    finish_and_compare(bench, run)
    assert repeated <= KILLS * BATCH
    assert not list((bench.home / "tmp").glob("kopt-candidate-*"))


def finish_and_compare(bench: Bench, run: Path) -> None:
    """The killed run's end, and that of a copy whose search was complete and never killed."""
    code, shown, err = bench.finish(bench.resume(run))
    assert code in {0, 1}, err
    entries = entries_of(run)
    check_entries(entries)
    state = RunFolder(run).load()
    assert len(state.evaluations) == 44
    assert Counter(str(e.status) for e in state.evaluations) == shown["trials"] == {"correct": 44}
    confirmed = confirmations(entries)
    assert [e.id for e in confirmed] == ranked(state)[: len(confirmed)]
    assert shown["best"]["id"] == winner(confirmed)
    assert shown["spend"]["trials"] == 44
    assert shown["spend"]["seconds"] >= entries[-1].spend.seconds - 1.0

    copy = run.parent / f"{run.name}-copy"
    shutil.copytree(run, copy)
    last = max(i for i, entry in enumerate(entries) if isinstance(entry.event, Evaluated))
    whole = (copy / FILE_NAME).read_bytes().splitlines(keepends=True)
    (copy / FILE_NAME).write_bytes(b"".join(whole[: last + 1]))
    (copy / "result.json").unlink()
    code, again, err = bench.finish(bench.resume(copy))
    assert code in {0, 1}, err
    assert ranked(RunFolder(copy).load()) == ranked(state)
    others = confirmations(entries_of(copy))
    assert [e.id for e in others] == ranked(state)[: len(others)]
    assert others[0].id == confirmed[0].id
    assert again["best"]["id"] == winner(others)
    shutil.rmtree(copy)


# --- Ctrl-C, a finished run, another machine, a damaged cache ----------------------------------------


@pytest.fixture(scope="module")
def finished(bench: Bench) -> tuple[Path, dict[str, Any]]:
    """A run of eight variants, never disturbed, with a cache that was empty before."""
    shutil.rmtree(bench.cache, ignore_errors=True)
    code, shown, err = bench.finish(bench.optimize(8))
    assert code in {0, 1}, err
    return Path(shown["folder"]), shown


def test_ctrl_c_at_any_time_can_be_resumed(bench: Bench) -> None:
    chance = random.Random(5)
    interrupted = 0
    for lines in (0, 1, 3):
        run = bench.unfinished()
        before = lines_of(run)
        process = bench.optimize(8) if run is None else bench.resume(run)
        start = time.monotonic()
        while process.poll() is None:
            run = run or bench.unfinished()
            grown = run is not None and lines_of(run) - before >= lines
            if grown and time.monotonic() - start > 1.5:
                time.sleep(chance.uniform(0.0, 0.5))
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.02)
        code, shown, err = bench.finish(process)
        assert (code, shown["status"]) == (2, "interrupted"), err
        assert "kopt resume" in shown["reason"]
        run = Path(shown["folder"])
        check_entries(entries_of(run))
        interrupted += 1
        assert eventually(lambda: not marked(str(bench.home)), 10.0)
    assert interrupted == 3
    assert run is not None
    code, shown, err = bench.finish(bench.resume(run))
    assert code in {0, 1}, err
    assert len(evaluated_ids(entries_of(run))) == 8


def test_a_finished_run_is_not_gone_on_with(
    bench: Bench, finished: tuple[Path, dict[str, Any]]
) -> None:
    run, _ = finished
    before = (run / FILE_NAME).read_bytes()
    code, _, err = bench.finish(bench.resume(run))
    assert code == 4
    assert "has ended" in err
    assert "kopt show" in err
    assert (run / FILE_NAME).read_bytes() == before


@pytest.fixture
def cut(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of the finished run as a kill after its third evaluation would have left it."""
    run, _ = finished
    copy = tmp_path / "cut"
    shutil.copytree(run, copy)
    entries = entries_of(run)
    third = [i for i, entry in enumerate(entries) if isinstance(entry.event, Evaluated)][2]
    lines = (copy / FILE_NAME).read_bytes().splitlines(keepends=True)
    (copy / FILE_NAME).write_bytes(b"".join(lines[: third + 1]))
    (copy / "result.json").unlink()
    return copy


@pytest.mark.parametrize("what", ["g++", "device"])
def test_a_run_of_another_machine_is_refused(bench: Bench, cut: Path, what: str) -> None:
    lines = (cut / FILE_NAME).read_text().splitlines(keepends=True)
    opened = json.loads(lines[0])
    device = opened["data"]["opening"]["device"]
    if what == "device":
        device["name"] = "Another CPU"
    else:
        device["versions"]["g++"] = "1.2.3"
    lines[0] = json.dumps(opened) + "\n"
    (cut / FILE_NAME).write_text("".join(lines))
    before = (cut / FILE_NAME).read_bytes()
    code, shown, err = bench.finish(bench.resume(cut))
    assert (code, shown) == (4, {})
    assert what in err
    assert ("1.2.3" if what == "g++" else "Another CPU") in err
    assert "new run" in err
    assert (cut / FILE_NAME).read_bytes() == before


def test_builds_are_reused_and_damaged_ones_rebuilt(
    bench: Bench, finished: tuple[Path, dict[str, Any]]
) -> None:
    run, _ = finished
    first = RunFolder(run).load().evaluations
    assert [e.build.cached for e in first if e.build] == [False] * 8
    libraries = sorted((bench.cache / "builds").glob("*/kernel.so"))
    assert len(libraries) == 8
    damaged = {path.parent.name for path in libraries[:3]}
    for path, damage in zip(libraries, ("flip", "empty", "gone"), strict=False):
        spoil(path, damage)
    code, shown, err = bench.finish(bench.optimize(8))
    assert code in {0, 1}, err
    second = RunFolder(Path(shown["folder"])).load().evaluations
    assert [e.status for e in second] == ["correct"] * 8
    assert Counter(e.build.cached for e in second if e.build) == {True: 5, False: 3}
    assert {p.parent.name for p in (bench.cache / "builds").glob("*/kernel.so")} >= damaged
    binaries = {e.id: e.build.binary_id for e in first if e.build}
    assert {e.id: e.build.binary_id for e in second if e.build and e.build.cached}.items() <= (
        binaries.items()
    )


def spoil(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flip":
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    elif damage == "empty":
        path.touch()


@pytest.mark.usefixtures("finished")
def test_the_session_stays_small_and_without_torch(bench: Bench) -> None:
    """Looked at every tenth of a second, in every run of this file that was let finish."""
    assert bench.watch.libraries == set()
    assert 10 << 20 < bench.watch.most_bytes < 200 << 20
