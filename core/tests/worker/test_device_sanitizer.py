"""What compute-sanitizer writes, and processes that another command starts."""

from __future__ import annotations

import shutil
import textwrap

import pytest

from kopt.errors import CandidateError
from kopt.worker import device_sanitizer
from kopt.worker.device_sanitizer import TOOLS, find_tool, findings, sanitize

READ = """\
    ========= COMPUTE-SANITIZER
    ========= Invalid __global__ read of size 4 bytes
    =========     at _norm+0x1d0 in kernel.py:14
    =========     by thread (0,0,0) in block (0,0,0)
    =========     Access to 0x7f5b5f018000 is out of bounds
    =========     and is 1 bytes after the nearest allocation at 0x7f5b5f000000 of size 98,304 bytes
    =========     Device Frame: _norm [0x1d0]
    =========
    ========= Invalid __global__ read of size 4 bytes
    =========     at _norm+0x1d0 in kernel.py:14
    =========     by thread (1,0,0) in block (0,0,0)
    =========     Access to 0x7f5b5f018004 is out of bounds
    =========     and is 5 bytes after the nearest allocation at 0x7f5b5f000000 of size 98,304 bytes
    =========
    ========= Target application returned an error
    ========= ERROR SUMMARY: 2 errors
"""
RACE = """\
    ========= COMPUTE-SANITIZER
    ========= Error: Race reported between Write access at sums+0x340 in kernel.cu:17
    =========     and Read access at sums+0x2c0 in kernel.cu:17 [96 hazards]
    =========
    ========= Warning: Race reported between Read access at sums+0x2c0 in kernel.cu:17
    =========     and Write access at sums+0x340 in kernel.cu:17 [96 hazards]
    =========
    ========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def read(tool, log):
    return [(each.kind, each.line, each.message) for each in findings(tool, textwrap.dedent(log))]


def test_a_read_past_the_end_is_one_finding_with_its_line():
    assert read("memcheck", READ) == [
        ("Invalid __global__ read of size 4 bytes", 14, "in _norm: Access to an address is out of bounds")
    ]  # fmt: skip


def test_a_race_has_the_line_of_its_first_access_and_warnings_are_none():
    assert read("racecheck", RACE) == [("Race reported between Write", 17, "in sums")]


@pytest.mark.parametrize(
    "log",
    [
        CLEAN,
        "",
        "========= Error: Target application terminated before first instrumented API call\n",
        "========= Host API memory access error at host access to 0x7f of size 98,304 bytes\n",
        "========= Internal Sanitizer Error: no\n",
    ],
)
def test_what_is_no_finding(log):
    assert read("memcheck", log) == []


def test_at_most_a_few_findings_are_kept():
    log = "".join(f"========= Invalid __global__ read of size {n} bytes\n" for n in range(1, 99))
    assert len(findings("memcheck", log)) == 20


def never(process, launches):
    raise AssertionError("no process should have been started")


def test_large_calls_and_a_missing_tool_are_named(recipe, monkeypatch):
    monkeypatch.setattr(device_sanitizer, "find_tool", lambda: "compute-sanitizer")
    report = sanitize(recipe, 5 << 30, never)
    assert set(report.skipped) == set(TOOLS)
    assert "5120 MiB, more than 1024" in report.skipped["memcheck"]
    monkeypatch.setattr(device_sanitizer, "find_tool", lambda: None)
    report = sanitize(recipe, 8, never)
    assert (report.ran, set(report.skipped)) == ((), set(TOOLS))
    assert "install NVIDIA's CUDA toolkit" in report.skipped["racecheck"]


def test_a_tool_that_gave_the_process_up_has_found_nothing(recipe, monkeypatch, tmp_path):
    """Honest kernels were refused where imports took longer than the tool waits."""
    said = (
        "========= Error: No attachable process found. compute-sanitizer timed-out.\n"
        "========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion.\n"
    )
    assert findings("memcheck", said) == ()
    tool = tmp_path / "compute-sanitizer"
    gives_up = SLOW_INITCHECK.replace("sleep 60", "true").replace(CLEAN_LINE, said.strip())
    tool.write_text(gives_up)
    tool.chmod(0o755)
    monkeypatch.setattr(device_sanitizer, "find_tool", lambda: str(tool))
    report = sanitize(recipe, 8, lambda process, launches: process.order("ping", 20.0))
    assert (report.ran, report.findings) == ((), ())
    (reason,) = set(report.skipped.values())
    assert "gave up before the process had used CUDA" in reason


CLEAN_LINE = "========= ERROR SUMMARY: 0 errors"
SLOW_INITCHECK = """#!/bin/sh
tool=$2 log=$4
while case "$1" in */python*) false;; esac; do shift; done
[ "$tool" = initcheck ] && sleep 60
"$@"
echo "========= ERROR SUMMARY: 0 errors" > "$log"
"""


def test_a_tool_whose_findings_are_notes_does_not_hold_a_verdict_up(recipe, monkeypatch, tmp_path):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(SLOW_INITCHECK)
    tool.chmod(0o755)
    monkeypatch.setattr(device_sanitizer, "find_tool", lambda: str(tool))
    monkeypatch.setattr(device_sanitizer, "_PATIENCE_SECONDS", 0.1)
    report = sanitize(recipe, 8, lambda process, launches: process.order("ping", 20.0))
    assert report.ran == ("memcheck", "racecheck")
    assert report.skipped == {
        "initcheck": "it took 0.1 s longer than the tools whose findings count"
    }
    assert report.seconds < 30


def test_it_is_looked_for_in_cudas_folder_too(tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool() == str(tool)


def test_a_wrapped_process_takes_orders_and_ends_by_itself(recipe):
    process = recipe.start(wrapper=[shutil.which("env"), "WRAPPED=1"])
    recipe.ready(process)
    assert process.order("ping", 5.0)["ok"] is True
    home = process.home
    process.end(10.0)
    assert not process.alive
    assert process._process.returncode == 0  # it was not killed
    assert not home.exists()
    with pytest.raises(CandidateError):
        process.order("ping", 1.0)
