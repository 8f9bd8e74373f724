"""Runs `kopt selftest` and records the outcome of every kernel, with what it took and on what.

python benchmarks/selftest_record.py -o benchmarks/results/NAME.json --device cuda
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kopt.cli.progress import ProgressReporter
from kopt.cli.selftest_verb import findings_json
from kopt.selftest.cases import CASES, KNOWN_OPEN, Finding
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
    given = parser.parse_args()
    cases, started = selected(CASES, given.device), time.monotonic()
    with ProgressReporter() as steps:
        found = list(run(cases, given.device, steps, jobs=given.jobs))
    seconds = time.monotonic() - started
    found.sort(key=lambda finding: cases.index(finding.case))
    from kopt_torch.machine import find_device  # brings PyTorch, which judges must not wait for

    record = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(), "platform": platform.platform(),
        "versions": versions(), "device": find_device(given.device).to_json(),
        "jobs": given.jobs, "seconds": round(seconds, 1),
        "summary": findings_json(found)["summary"], "kernels": [one(each) for each in found],
    }  # fmt: skip
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["summary"]))
    return 0 if all(finding.right for finding in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
