"""Recorded reports, a small real program in ncu's place, and a probe that runs what it is given."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kopt.model.probe import Timeline, UnderTool
from kopt_ncu.self_check import run

HERE = Path(__file__).parent

# Takes ncu's options off its command line as ncu does, runs the program that is left, and then
# does what a test has it do with $report and $log; $code is how the program ended.
_SCRIPT = """\
#!/bin/sh
case "$1" in
--version) echo "NVIDIA (R) Nsight Compute Command Line Profiler"
    echo "Version 2025.3.1.0 (build 36398880) (public-release)"; exit 0 ;;
--import) echo "$@" > {folder}/imported
    [ "$(wc -c < "$2")" -gt 1000 ] || {{ echo "==ERROR== Failed to open the report"; exit 1; }}
    cat {csv}; exit 0 ;;
esac
printf '%s\\n' "$@" > {folder}/arguments
while [ $# -gt 0 ]; do
    case "$1" in
    --export) report="$2"; shift 2 ;;
    --log-file) log="$2"; shift 2 ;;
    --force-overwrite) shift ;;
    --*) shift 2 ;;
    *) break ;;
    esac
done
"$@"
code=$?
{body}
"""


class CommandProbe:
    """Runs a program of the test through the command, as kopt does with a candidate."""

    def __init__(self, *program: str) -> None:
        self.program = program or (sys.executable, "-c", "print('called')")
        self.runs = 0

    def under(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        calls: int = 1,
        seconds: float = 120.0,
    ) -> UnderTool:
        assert calls == 1
        assert environment is None
        self.runs += 1
        return run((*command, *self.program), seconds)

    def timeline(self, calls: int = 10) -> Timeline | None:
        raise AssertionError("ncu needs no timeline")

    def listing(self, kind: str) -> dict[str, str]:
        raise AssertionError("ncu needs no listing")


@pytest.fixture
def probe() -> type[CommandProbe]:
    """A probe to be made of a program and its arguments."""
    return CommandProbe


@pytest.fixture
def recorded() -> Path:
    """The folder of what was recorded on an H100."""
    return HERE / "recorded"


@pytest.fixture
def fake_ncu(tmp_path: Path, recorded: Path) -> Callable[[str], str]:
    """Make an executable that behaves as ncu does in one situation; return its path."""

    def make(body: str) -> str:
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir(exist_ok=True)
        csv = shlex.quote(str(recorded / "judge.csv"))
        folder = shlex.quote(str(tmp_path))
        path.write_text(_SCRIPT.format(folder=folder, csv=csv, body=body))
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def profiling_ncu(fake_ncu: Callable[[str], str], recorded: Path) -> str:
    """An ncu that leaves the recorded report."""
    report = shlex.quote(str(recorded / "judge.ncu-rep"))
    return fake_ncu(f'cp {report} "$report"; echo "==PROF== Report: $report" > "$log"; exit $code')
