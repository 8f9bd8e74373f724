"""A whole run with recorded answers: profile, diagnosis, idea, code, repair, verified improvement."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kopt.model.evaluation import Evaluation
from kopt.model.run import Run
from kopt.model.verification import Status
from kopt.runs.completions import read_exchange
from kopt.runs.events import Diagnosed, PluginFailed, ReplyRead, Spent
from kopt.runs.journal import read_journal
from kopt.runs.store import RunFolder
from kopt_rewrite.lineage import plain

pytest.importorskip("kopt_torch")
pytest.importorskip("kopt_cpp")
pytest.importorskip("kopt_replay")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("replayed-run")]

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "moving_average"


class Done(NamedTuple):
    """A run that has ended."""

    folder: Path
    run: Run
    evaluations: tuple[Evaluation, ...]
    events: list[object]

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


def with_more_expected(place: Path) -> Path:
    """Return a copy of the recordings whose first ideas say, too, what a profiler should see."""
    shutil.copytree(RECORDED, place)
    before, changed = '\\"latency_us\\": 0.3', 0
    for path in place.glob("*.json"):
        text = path.read_text()
        if json.loads(text)["request"]["role"] == "analysis":
            more = f'{before}, \\"static_instructions\\": 0.9, \\"dram_bytes\\": 0.5'
            changed += text.count(before)
            path.write_text(text.replace(before, more))
    assert changed
    return place


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A run that a command line made."""
    place = tmp_path_factory.mktemp("replayed")
    recorded = with_more_expected(place / "recorded")
    command = [
        sys.executable, "-m", "kopt", "optimize", str(HERE / "moving_average"), "--backend", "cpp",
        "--strategy", "rewrite", "--search", "greedy", "--judge", "roofline", "--profiler", "static",
        "--profiler", "perf", "--llm", "replay", "-o", f"llm.replay.folder={recorded}",
        "-o", "llm.replay.match=order", "-o", "strategy.rewrite.attempts=2",
        "-o", "backend.torch.compile=false", "--max-trials", "6", "--runs-dir", str(place / "runs"),
    ]  # fmt: skip
    environment = {**os.environ, "NO_COLOR": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [path] = (place / "runs").iterdir()
    folder = RunFolder(path)
    run = folder.read_result()
    assert run is not None
    content = read_journal(path)
    events = [entry.event for entry in content.entries]
    return Done(path, run, folder.load().evaluations, events)


def the(evaluations, *parts: str) -> Evaluation:
    """Return the only evaluation whose idea or source has all of ``parts``."""
    found = [
        e for e in evaluations if all(p in e.candidate.source or p in e.candidate.idea for p in parts)
    ]  # fmt: skip
    assert len(found) == 1, parts
    return found[0]


def test_a_repaired_idea_becomes_a_verified_improvement(done: Done):
    first = the(done.evaluations, "const float before")
    failed = [e for e in done.evaluations if e.status is Status.COMPILE_ERROR]
    broken = the(failed, "% LANES")
    [repaired] = [e for e in done.evaluations if broken.id in e.candidate.parents]
    assert broken.candidate.parents == (first.id,)
    assert "LANES" in broken.detail
    assert plain(repaired.candidate.idea) == plain(broken.candidate.idea)
    assert repaired.status is Status.CORRECT
    assert repaired.measurement is not None and first.measurement is not None
    assert repaired.measurement.latency_ms < first.measurement.latency_ms
    assert {e.candidate.strategy for e in done.evaluations} == {"rewrite"}


def test_the_run_improved_on_every_baseline(done: Done):
    assert done.run.status == "improved"
    assert done.run.best is not None
    assert done.run.best.candidate.strategy == "rewrite"
    assert done.run.best.measurement is not None
    assert done.run.best.measurement.protocol == "confirm"
    assert done.run.source_path is not None and done.run.source_path.exists()


def test_each_step_is_in_the_journal(done: Done):
    diagnosed = done.of(Diagnosed)
    assert diagnosed
    assert all(event.profiles for event in diagnosed)
    assert all(bool(event.diagnoses) is event.judged for event in diagnosed)
    assert any(event.judged for event in diagnosed)
    watched = {e.id for e in done.evaluations if e.candidate.watched}
    assert {event.parent for event in diagnosed if not event.judged} <= watched
    spent = done.of(Spent)
    wanted = ["code"] * 5 + ["analysis"] * 2 + ["reflection"] * 2 + ["repair"]
    assert sorted(event.role for event in spent) == sorted(wanted)
    assert {event.outcome for event in spent} == {"answered"}
    read = done.of(ReplyRead)
    assert {event.outcome for event in read} == {"module", "edits", "ideas", "lessons"}
    assert all(event.usable for event in read)
    assert done.of(PluginFailed) == []
    ideas = {plain(e.candidate.idea) for e in done.evaluations}
    assert {event.purpose for event in spent} <= ideas | {"ideas", "lessons"}


def test_its_prompts_carry_what_the_run_found_out(done: Done):
    found = [read_exchange(path).request for path in (done.folder / "completions").glob("*.json")]
    text = {role: [r.messages[-1].content for r in found if r.role == role]
            for role in ("analysis", "code", "repair", "reflection")}  # fmt: skip
    [repair] = text["repair"]
    assert "Outcome: compile-error." in repair
    assert "LANES" in repair
    assert all("Diagnosis by the judge roofline" in each for each in text["analysis"])
    assert all("Lessons of this run so far" in each for each in text["analysis"])
    assert any("failed: compile-error" in each for each in text["reflection"])
    assert any("one row at a time" in each for each in text["reflection"])


def test_what_was_predicted_is_held_against_the_profile(done: Done):
    """The better kernel became a parent, and was profiled; nothing here counts bytes of DRAM."""
    found = [read_exchange(path).request for path in (done.folder / "completions").glob("*.json")]
    text = "\n".join(r.messages[-1].content for r in found if r.role == "reflection")
    assert re.search(r"- latency_us: expected x0\.3, measured x[\d.]+ \(.* -> .*\): ", text)
    assert re.search(
        r"- static_instructions: expected x0\.9, measured x[\d.]+ \(.* -> .*\): ", text
    )
    assert "No profiler measured these of both kernels: dram_bytes." in text
    assert "It failed before these were measured: latency_us" in text
    analyses = "\n".join(r.messages[-1].content for r in found if r.role == "analysis")
    assert re.search(r"static_instructions x[\d.]+ for x0\.9 \(", analyses)
