"""The whole comparison: every case through every harness, the record, and the table."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kopt.selftest.cases import FIXTURES, Case
from kopt_cpp.compiler import find_compiler
from rivals import autokernel, kernelagent, kernelbench, nursery, robust_kbench
from rivals.board import KERNELS, Line, counted, cpu_cases, table, which
from rivals.jobs import Job, Verdict
from rivals.tasks import Task

if TYPE_CHECKING:
    from types import ModuleType

    from rivals.jobs import Outcome

PROTOCOLS: tuple[ModuleType, ...] = (kernelbench, kernelagent, robust_kbench, autokernel)
NO_CHECKER = "KernelBench, batch scripts (no static checker)"
OF_THE_CLOCK = {"slow-with-patched-statistics"}
"""Honest for kopt, whose clock is elsewhere; in a harness's own process it breaks the harness."""


class Comparison:
    """The cases on their tasks, in a scratch folder; ``jobs`` at a time."""

    def __init__(self, cases: list[Case], scratch: Path, *, jobs: int, limit: float) -> None:
        self._cases, self._scratch, self._jobs, self._limit = cases, scratch, jobs, limit
        self._tasks = {
            name: Task(FIXTURES / "problems" / name) for name in {case.problem for case in cases}
        }

    def rivals(self) -> list[Line]:
        """Judge every case by every protocol.

        What a protocol does not take (a language, or a task whose very reference it rejects) is
        marked "does not apply" and not run.
        """
        with ThreadPoolExecutor(self._jobs) as pool:
            pairs = [(protocol, name) for protocol in PROTOCOLS for name in sorted(self._tasks)]
            references = dict(zip(pairs, pool.map(self._reference, pairs), strict=True))
            todo = [(protocol, case) for protocol in PROTOCOLS for case in self._cases]
            done = list(pool.map(lambda pair: self._lines(pair[0], pair[1], references), todo))
        nursery.close()
        return [line for lines in done for line in lines]

    def _reference(self, pair: tuple[ModuleType, str]) -> Verdict:
        protocol, name = pair
        folder = self._scratch / f"reference-{name}-{protocol.NAME}"
        return self._judged(protocol, Job(self._tasks[name], None, folder, limit=self._limit))

    def _lines(
        self, protocol: ModuleType, case: Case, references: dict[tuple[ModuleType, str], Verdict]
    ) -> list[Line]:
        reference = references[protocol, case.problem]
        folder = self._scratch / f"{case.name}-{protocol.NAME}"
        job = Job(
            self._tasks[case.problem], KERNELS / case.kernel, folder,
            timed=case.timed, limit=self._limit,
        )  # fmt: skip
        if job.language not in protocol.LANGUAGES:
            verdict = Verdict("does not apply", f"it takes no kernels in {job.language}")
        elif case.name in OF_THE_CLOCK:
            verdict = Verdict("does not apply", "it changes what the harness computes with")
        elif reference.outcome != "accepted":
            verdict = Verdict("does not apply", f"it rejects the reference: {reference.detail}")
        else:
            verdict = self._judged(protocol, job)
        print(f"{protocol.NAME:14} {case.name:26} {verdict.outcome}", file=sys.stderr, flush=True)
        lines = [_line(protocol.NAME, case, verdict, verdict.outcome)]
        if protocol is kernelbench:
            without = verdict.without_checker or verdict.outcome
            lines.append(_line(NO_CHECKER, case, verdict, without))
        return lines

    def _judged(self, protocol: ModuleType, job: Job) -> Verdict:
        """Judge by a protocol; a record holds no path of the machine."""
        verdict = cast("Verdict", protocol.judge(job))
        detail = verdict.detail.replace(f"{self._scratch}/", "")
        return dataclasses.replace(verdict, detail=detail)

    def itself(self) -> list[Line]:
        """Judge the same cases by kopt."""
        output = self._scratch / "itself.json"
        names = [case.name for case in self._cases]
        subprocess.run(
            [sys.executable, "-m", "rivals.itself", str(output), *names], check=True,
            env={**os.environ, "PYTHONPATH": str(nursery.HERE)},
        )  # fmt: skip
        found = json.loads(output.read_text(encoding="utf-8"))
        return [
            Line(
                "kopt", case.name, case.kind, _kopt_outcome(found[case.name]["outcome"]),
                f"{found[case.name]['outcome']}: {found[case.name]['detail']}",
            )
            for case in self._cases
        ]  # fmt: skip


def _kopt_outcome(status: str) -> Outcome:
    return "accepted" if status == "correct" else "rejected"


def _line(harness: str, case: Case, verdict: Verdict, outcome: Outcome) -> Line:
    believed = not (case.timed and case.kind == "attack" and verdict.doubted)
    return Line(harness, case.name, case.kind, outcome, verdict.detail, verdict.speedup, believed)


def _record(lines: list[Line], seconds: float) -> dict[str, Any]:
    compiler = find_compiler()
    return {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {
            "kopt": version("kopt"), "torch": version("torch"),
            "c++ compiler": compiler.version if compiler else None,
        },
        "re-implemented from": {protocol.NAME: protocol.VERSION for protocol in PROTOCOLS},
        "summary": counted(lines),
        "outcomes": [dataclasses.asdict(line) for line in lines],
    }  # fmt: skip


def main() -> None:
    """Run, print the table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[], help="names of cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--limit", type=float, default=30, help="seconds of one process")
    given = parser.parse_args()
    cases = [case for case in cpu_cases() if not given.only or case.name in given.only]
    if unknown := set(given.only) - {case.name for case in cases}:
        parser.error(f"no such case on a CPU: {', '.join(sorted(unknown))}; see `kopt selftest`")
    begun = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory() as scratch:
        comparison = Comparison(cases, Path(scratch), jobs=given.jobs, limit=given.limit)
        lines = [*comparison.rivals(), *comparison.itself()]
    seconds = (datetime.datetime.now(datetime.UTC) - begun).total_seconds()
    record = _record(lines, seconds)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record["summary"]), which(record["summary"]), sep="\n\n")


if __name__ == "__main__":
    main()
