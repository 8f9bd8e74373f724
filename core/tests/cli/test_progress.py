"""Progress: one line per event on stderr, and a bar on a terminal only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest

from kopt.cli.progress import ProgressReporter
from kopt.model.budget import Budget, Spend
from kopt.model.candidate import Candidate
from kopt.model.run import Run
from kopt.model.verification import Status
from kopt.testing.records import failed, measured


def kernel(idea: str) -> Candidate:
    return Candidate(language="cpp", source=idea, entry="f", strategy="s", idea=idea)


def test_one_line_per_event_and_nothing_on_stdout(
    run_of: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = measured(kernel("wide [loads]"), 2.0), failed(kernel("b"), Status.COMPILE_ERROR)
    bad = bad.model_copy(update={"detail": "kernel.cpp:3: error\nmore of it"})
    with ProgressReporter(Budget(seconds=60), Spend(trials=7)) as reporter:
        reporter._fastest = "eager"
        reporter.proposed(1, [good.candidate])
        reporter.evaluated(good, good)
        reporter.evaluated(bad, good)
        reporter.confirming(good.candidate)
        reporter.unconfirmed(bad)
        reporter.finished(run_of("improved", 2.0))
    out, err = capsys.readouterr()
    assert out == ""
    events = [line.split("s ", 1)[1] for line in err.splitlines()]
    assert events[0] == "round 1: 1 candidate"
    assert events[1] == (
        f"#8   {good.id[:8]} correct 0.5000 ms  2.000x (1.980 to 2.020) * s: wide [loads]"
    )
    assert events[2] == f"#9   {bad.id[:8]} compile-error s: b | kernel.cpp:3: error"
    assert events[4:] == [
        f"not confirmed: {bad.id[:8]} compile-error | kernel.cpp:3: error", "improved: why",
    ]  # fmt: skip


PROGRAM = """
from kopt.cli.progress import ProgressReporter
from kopt.model.budget import Budget
with ProgressReporter(Budget(seconds=60)) as reporter:
    reporter.opening("rms_norm " + 60 * "x", "cpu")
    raise SystemExit(3)
"""


def test_on_a_terminal_lines_do_not_wrap_and_the_bar_goes_away() -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE, stderr=slave, env=environment, timeout=60,
    )  # fmt: skip
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:  # Linux says so at the end of a terminal whose other side is closed
        pass
    os.close(master)
    text = written.decode()
    assert (done.returncode, done.stdout) == (3, b"")
    assert "…" in text.splitlines()[0]
    assert "timing the baselines" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert "\x1b[31m" not in text
    assert "\x1b[32m" not in text
