"""Records how many candidates `kopt optimize` evaluates a minute, with an empty build cache.

python benchmarks/candidates_per_minute.py -o benchmarks/results/NAME.json PROBLEM [--trials 40]

Written are the rate from the first proposal to the last verdict, the same with opening the problem
and confirming the winner, and for each candidate when it was done and what it took. Nothing is
asserted: a rate belongs to a machine, and to what else ran on it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from kopt.runs.events import Evaluated, Opened
from kopt.runs.journal import read_journal


def run(problem: Path, trials: int, device: str, home: Path) -> tuple[Path, float, int]:
    """Run a search; return its folder, its seconds and the session's largest memory in bytes."""
    command = [
        sys.executable, "-m", "kopt", "optimize", str(problem.absolute()), "--device", device,
        "--max-trials", str(trials), "--max-time", "30m", "--runs-dir", str(home / "runs"),
        "--json",
    ]  # fmt: skip
    environment = {**os.environ, "KOPT_CACHE_DIR": str(home / "cache")}
    most, start = 0, time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd=home) as process:
        session = psutil.Process(process.pid)
        while process.poll() is None:
            most = max(most, _memory(session))
            time.sleep(0.1)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"kopt exited with {process.returncode}")
    (folder,) = (home / "runs").iterdir()
    return folder, time.monotonic() - start, most


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0  # it has just ended


def rates(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the rates and each candidate's times, from the run's journal."""
    entries = read_journal(folder).entries
    opened = next(entry for entry in entries if isinstance(entry.event, Opened))
    assert isinstance(opened.event, Opened)
    done = [(e.time, e.event.evaluation) for e in entries if isinstance(e.event, Evaluated)]
    searching = done[-1][0] - opened.time
    return {
        "candidates": len(done),
        "per_minute": 60 * len(done) / searching,
        "per_minute_with_opening_and_confirming": 60 * len(done) / seconds,
        "opening_seconds": opened.spend.seconds,
        "run_seconds": seconds,
        "device": opened.event.opening.device.to_json(),
        "evaluations": [
            {
                "done_at_seconds": at - opened.time,
                "seconds": evaluation.seconds,
                "build_seconds": evaluation.build.seconds if evaluation.build else None,
                "cached": evaluation.build.cached if evaluation.build else None,
                "status": str(evaluation.status),
                "idea": evaluation.candidate.idea,
            }
            for at, evaluation in done
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kopt-rate-") as home:
        folder, seconds, memory = run(given.problem, given.trials, given.device, Path(home))
        found = rates(folder, seconds)
    record = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "problem": given.problem.name,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "session_most_memory_bytes": memory,
        **found,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{found['per_minute']:.1f} candidates a minute; session {memory / 1e6:.0f} MB at most")


if __name__ == "__main__":
    main()
