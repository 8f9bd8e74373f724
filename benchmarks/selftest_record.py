"""Runs `kopt selftest` and records the outcome of every kernel, with what it took and on what.

python benchmarks/selftest_record.py -o benchmarks/results/NAME.json --device cuda
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kopt.cli.progress import ProgressReporter
from kopt.cli.selftest_verb import findings_json
from kopt.selftest.cases import CASES, KNOWN_OPEN, Case, Finding
from kopt.selftest.runner import default_jobs, run, selected

_DISTRIBUTIONS = ("kopt", "kopt-cpp", "kopt-torch", "kopt-triton", "kopt-verify", "torch", "triton")


def one(finding: Finding) -> dict[str, Any]:
    """Return what is kept of a kernel's verdict."""
    case = finding.case
    return {
        "name": case.name, "kind": case.kind, "problem": case.problem, "kernel": case.kernel,
        "timed": case.timed, "expected": [str(status) for status in case.expected],
        "outcome": str(finding.outcome), "right": finding.right,
        "seconds": round(finding.seconds, 2), "detail": " ".join(finding.detail.split())[:300],
        **({"known": KNOWN_OPEN[case.name]} if case.name in KNOWN_OPEN else {}),
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of what took part, as far as it is installed."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Run, write, and return the exit code that `kopt selftest` would have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these kernels alone")
    given = parser.parse_args()
    cases, started = selected(CASES, given.device), time.monotonic()
    if given.only:
        unknown = set(given.only) - {case.name for case in cases}
        if unknown:
            parser.error(f"no such kernel on {given.device}: {', '.join(sorted(unknown))}")
        cases = [case for case in cases if case.name in given.only]
    found: list[Finding] = []
    with ProgressReporter() as steps:
        for finding in run(cases, given.device, steps, jobs=given.jobs):
            found.append(finding)  # written each time: whoever ends it early keeps what was found
            write(given, sorted(found, key=lambda f: cases.index(f.case)), cases, started)
    print(json.dumps(findings_json(found)["summary"]))
    return 0 if all(finding.right for finding in found) else 1


def write(
    given: argparse.Namespace, found: list[Finding], cases: list[Case], started: float
) -> None:
    """Write what was found so far."""
    record = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(), "platform": platform.platform(),
        "versions": versions(), "device": device_of(given.device),
        "jobs": given.jobs, "seconds": round(time.monotonic() - started, 1),
        "cases": len(cases), "not_run": len(cases) - len(found),
        "summary": findings_json(found)["summary"], "kernels": [one(each) for each in found],
    }  # fmt: skip
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@functools.cache
def device_of(kind: str) -> dict[str, Any]:
    """Return the device, as a process of its own sees it: this one's judges need no PyTorch."""
    code = (
        "import json, sys; from kopt_torch.machine import find_device; "
        "print(json.dumps(find_device(sys.argv[1]).to_json()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, kind], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    raise SystemExit(main())
