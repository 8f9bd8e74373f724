"""Counts of real programs under the real perf, and what is said where it does not count."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kopt.model.probe import UnderTool
from kopt.testing import records
from kopt.testing.diagnosing import NoTool
from kopt.testing.strategy import a_parent
from kopt_perf import Perf, profiler

PAGES = 2000
PROGRAM = f"""
import mmap, sys
for _ in range(int(sys.argv[1])):
    with mmap.mmap(-1, {PAGES} * mmap.PAGESIZE) as fresh:
        for page in range({PAGES}):
            fresh[page * mmap.PAGESIZE] = 1
"""
"""A program whose every call touches so many new pages."""
NOTHING = ["perf", "stat", "-x", ";", "-e", "task-clock", "--", sys.executable, "-c", ""]


class Program(NoTool):
    """A probe whose candidate is a Python program that takes the number of its calls."""

    def __init__(self, program, environment=None):
        self.program, self.environment, self.calls = program, environment, []

    def under(self, command, environment=None, *, calls=1, seconds=120.0):
        self.calls.append(calls)
        done = subprocess.run(
            [*command, sys.executable, "-c", self.program, str(calls)], capture_output=True,
            text=True, timeout=seconds, check=False, env=self.environment,
        )  # fmt: skip
        fault = f"it ended with {done.returncode}" if done.returncode else ""
        return UnderTool(fault=fault, output=done.stdout + done.stderr, seconds=0.1)


@pytest.fixture
def parent():
    """A measured C++ candidate whose calls take half a millisecond."""
    return a_parent()


@pytest.fixture
def perf():
    """The profiler, where perf counts at least CPU time."""
    try:
        done = subprocess.run(NOTHING, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no perf here; apt install linux-perf")
    if done.returncode or "<not" in done.stderr:
        pytest.skip(f"perf counts nothing here: {done.stderr.strip()}")
    return Perf(Perf.Options(seconds=0.1))


def values(profile):
    return {metric.name: metric.value for metric in profile.metrics}


def test_a_calls_page_faults_are_those_of_one_call(perf, parent):
    probe = Program(PROGRAM)
    profile = perf.kopt_profile(parent, records.cpu(), probe)
    assert probe.calls == [1, 1, 201]  # 0.1 s of calls of 0.5 ms, and those of the short runs
    found = values(profile)
    assert found["page_faults"] == pytest.approx(PAGES, rel=0.05)
    assert found["cpu_task_us"] > 0


def test_what_does_not_stand_out_is_left_out(perf, parent):
    profile = perf.kopt_profile(parent, records.cpu(), Program("print('no calls at all')"))
    left = [note for note in profile.notes if "do not stand out" in note]
    assert left and "perf.seconds" in left[0]
    assert "page_faults" in left[0]
    assert "page_faults" not in values(profile)


def test_a_candidate_that_fails_has_a_note(perf, parent):
    profile = perf.kopt_profile(parent, records.cpu(), Program("raise SystemExit('broken')"))
    assert profile.metrics == ()
    (note,) = profile.notes
    assert "it ended with 1" in note and "broken" in note


def test_without_perf_the_way_to_one_is_named(parent, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    profile = Perf().kopt_profile(parent, records.cpu(), NoTool())
    assert profile.metrics == ()
    assert "apt install linux-perf" in profile.notes[0]
    (row,) = Perf().kopt_check()
    assert row.state == "warn" and "apt install linux-perf" in row.fix


def test_perf_that_may_not_count_is_told_from_its_absence(parent, monkeypatch, tmp_path):
    level = tmp_path / "level"
    level.write_text("4\n", encoding="utf-8")
    monkeypatch.setattr(profiler, "_PARANOID", level)
    monkeypatch.setattr(profiler.shutil, "which", lambda name: f"/usr/bin/{name}")
    (row,) = Perf().kopt_check()
    assert row.state == "warn" and "perf_event_paranoid is 4" in row.detail
    level.write_text("1\n", encoding="utf-8")
    (row,) = Perf().kopt_check()
    assert row.state == "ok"


def test_a_gpu_and_an_unmeasured_candidate_have_no_profile(parent):
    assert Perf().kopt_profile(parent, records.gpu(), NoTool()) is None
    failed = records.failed(parent.candidate)
    assert Perf().kopt_profile(failed, records.cpu(), NoTool()) is None
