"""Judges every kernel that kopt-starters proposes for a suite, as it comes: no search, no tuning.

python benchmarks/starters_judged.py SUITE -o benchmarks/results/NAME.json [--languages cuda triton] [--jobs 4]

With --beside FOLDER a kernel file there with a problem's name, or with what is before its first dash, is
judged with them.

Each problem has a process of its own, which verifies and times the kernels at a search's depth, beside
eager PyTorch (and torch.compile with --compile). Several at a time take turns on the device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kopt.cli.outcome import evaluation_json
from kopt.config import Settings
from kopt.model.candidate import Candidate
from kopt.model.device import Target
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem
from kopt.single import evaluator_for
from kopt.suites.folder import folder_suite
from kopt.suites.kernelbench import kernelbench_suite
from kopt.suites.own import OWN, own_suite
from kopt.suites.problem import Suite, parse_ids
from kopt_starters import Starters

_STRUCTURES = 16
LANGUAGES = [Candidate(source="", language=name, entry="none") for name in ("triton", "cuda")]
"""Stand for what will be judged: their backends are loaded."""
BESIDE = "beside: "
"""What the idea of somebody else's kernel begins with; its folder's name follows."""


def suite_of(given: argparse.Namespace) -> Suite:
    """Return the suite that is named."""
    if given.suite == "kernelbench":
        return kernelbench_suite(given.root, given.level, given.dtype)
    if given.suite in OWN:
        return own_suite(given.suite)
    return folder_suite(Path(given.suite), each_workload=True)


def judged(problem: Problem, given: argparse.Namespace) -> dict[str, Any]:
    """Verify and time what is proposed for a problem."""
    began = time.monotonic()
    settings = Settings(device="cuda", options={"backend.torch": {"compile": given.compile}})
    with evaluator_for(problem, LANGUAGES, "cuda", settings) as evaluator:
        opening = evaluator.open()
        starters = Starters(Starters.Options(structures=_STRUCTURES))
        candidates = [
            candidate
            for language in given.languages
            for candidate in starters.kopt_propose(
                problem, opening.signature, Target(language=language, device=opening.device), None
            )
        ]
        if (other := beside(problem, given.beside)) is not None:
            candidates.append(other)
        found = list(evaluator.evaluate(candidates))
    return {
        "device": opening.device.to_json(), "copy_ms": opening.copy_ms, "noise": opening.noise,
        "baselines": {b.name: b.measurement.latency_ms for b in opening.baselines},
        "seconds": round(time.monotonic() - began, 1),
        "candidates": [{"idea": each.candidate.idea, **evaluation_json(each)} for each in found],
    }  # fmt: skip


def beside(problem: Problem, folder: Path | None) -> Candidate | None:
    """Return somebody else's kernel for a problem; None where there is none."""
    for name in (problem.name, problem.name.partition("-")[0]):
        if folder is not None and (file := folder / f"{name}.py").is_file():
            idea = f"{BESIDE}{folder.name}"
            return parse_kernel(file.read_text(encoding="utf-8"), "triton", idea=idea)
    return None


def apart(number: str, given: argparse.Namespace) -> dict[str, Any]:
    """Judge a problem in a process of its own; whatever fails is in the row."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", number]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        row: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        row = {"failed": (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]}
    return row


def tell(name: str, row: dict[str, Any]) -> None:
    """Print a line for a problem and one for each of its kernels."""
    print(name, row.get("failed") or row["baselines"], flush=True)
    for each in row.get("candidates", ()):
        ms = (each["measurement"] or {}).get("latency_ms")
        print(
            f"    {each['language']} {each['status']} {ms} {each['seconds']:.1f} s  {each['idea']}"
            f"  {each['detail'][:120]}",
            flush=True,
        )


def main() -> None:
    """Judge each problem and write what was found so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", help="table4, showcase, kernelbench, or a folder of problems")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--root", type=Path, help="checkout of KernelBench")
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--ids", help="as 1-20,33")
    parser.add_argument("--languages", nargs="+", default=["cuda", "triton"])
    parser.add_argument("--compile", action="store_true", help="torch.compile is a baseline too")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--beside", type=Path, help="folder of somebody else's kernel files")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.beside is not None and not given.beside.is_dir():
        parser.error(f"--beside {given.beside} is no folder; autokernel_kernels.py writes one")
    suite = suite_of(given)
    if given.one:
        (chosen,) = suite.chosen(parse_ids(given.one))
        json.dump(judged(chosen.load(), given), sys.stdout)
        return
    record: dict[str, Any] = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(), "python": platform.python_version(),
        "cpus": os.cpu_count(), "jobs": given.jobs,
        "versions": {name: version(name) for name in ("kopt", "kopt-starters", "torch", "triton")},
        "suite": suite.name, "problems": {},
    }  # fmt: skip
    problems = suite.chosen(parse_ids(given.ids) if given.ids else None)
    with ThreadPoolExecutor(given.jobs) as pool:
        asked = {pool.submit(apart, problem.id, given): problem.name for problem in problems}
        for done in as_completed(asked):  # what comes late keeps nothing from the record
            record["problems"][asked[done]] = done.result()
            tell(asked[done], done.result())
            given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
