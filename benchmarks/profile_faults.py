"""Profiles kernels whose one fault is known, and counts how often the first finding names it.

python benchmarks/profile_faults.py -o FOLDER [PROBLEM KERNEL=EXPECTED ...] [--only NAME ...] [--jobs N]

Each kernel is a `kopt profile --json` of its own; what it prints goes to FOLDER/NAME.json at once. More
kernels come in pairs: a problem, and a kernel file with what its first finding should be after "=", if
anything is expected. Several at a time take turns on the device: kopt times and profiles one alone,
but processes are started, and kernels are verified, beside each other. Exit code 0: every finding that something was expected of was right.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAULTS = Path(__file__).parents[1] / "plugins/judges/kopt-roofline/tests/faults"
_SAMPLES = ("samples_ms", "baseline_samples_ms")


@dataclass(frozen=True)
class Case:
    """A kernel to profile."""

    name: str
    problem: Path
    kernel: Path
    expected: tuple[str, ...] = ()
    """First findings that are right; empty: nothing is known."""


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    case: Case
    seconds: float
    found: str = ""
    failed: str = ""
    """Why there is no diagnosis; empty where there is one."""

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, `failed`, or `-` where nothing was expected."""
        if self.failed:
            return "failed"
        if not self.case.expected:
            return "-"
        return "right" if self.found in self.case.expected else "wrong"

    @property
    def row(self) -> tuple[str, ...]:
        """A line of the table."""
        expected = " or ".join(self.case.expected) or "-"
        found = self.found or textwrap.shorten(self.failed, 70, placeholder=" ...")
        return self.case.name, expected, found, self.verdict, f"{self.seconds:.1f}"


def faults(folder: Path) -> list[Case]:
    """Return the cases of an index faults.toml."""
    index = tomllib.loads((folder / "faults.toml").read_text(encoding="utf-8"))
    return [
        Case(name, folder / name, folder / name / "kernel.cu", tuple(entry["expected"]))
        for name, entry in index.items()
    ]


def pairs(given: list[str]) -> list[Case]:
    """Return the cases of PROBLEM KERNEL[=EXPECTED] ... of the command line."""
    if len(given) % 2:
        raise SystemExit(f"{given[-1]}: a problem without its kernel; give PROBLEM KERNEL pairs")
    cases = []
    for problem, kernel in zip(given[::2], given[1::2], strict=True):
        path, _, expected = kernel.partition("=")
        expectations = tuple(filter(None, expected.split(",")))
        stem = Path(path).stem
        name = Path(path).absolute().parent.name if stem == "kernel" else stem
        cases.append(Case(name, Path(problem), Path(path), expectations))
    return cases


def profiled(case: Case, given: argparse.Namespace) -> tuple[dict[str, Any] | None, str]:
    """Return what `kopt profile` printed, or None and why there is nothing."""
    command = [sys.executable, "-m", "kopt", "profile", str(case.problem), str(case.kernel)]
    more = [word for profiler in given.profiler for word in ("--profiler", profiler)]
    process = subprocess.Popen(
        [*command, "--device", given.device, "--json", "-o", "backend.torch.compile=false", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed, said = process.communicate(timeout=given.timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        return None, f"nothing after {given.timeout:g} s"
    (given.output / f"{case.name}.log").write_text(said, encoding="utf-8")
    try:
        return json.loads(printed), ""
    except ValueError:
        last = (said.strip().splitlines() or ["it printed nothing"])[-1]
        return None, f"exit code {process.returncode}: {last}"


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt, so that kopt ends what it started itself, and kill what is left soon after."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def slimmed(record: dict[str, Any], *, keep_raw: bool = False) -> dict[str, Any]:
    """Leave out the tools' own metrics, and all samples but their median (a record needs one)."""
    if keep_raw:
        return record
    for profile in record.get("profiles", ()):
        for kernel in profile["kernels"]:
            kernel["raw"] = {}
    measurement = record["evaluation"].get("measurement") or {"workloads": []}
    for workload in measurement["workloads"]:
        for pair in workload["pairs"]:
            pair.update({key: [statistics.median(pair[key])] for key in _SAMPLES})
    return record


def first_finding(record: dict[str, Any]) -> tuple[str, str]:
    """Return the first bottleneck that a judge named, or nothing and why."""
    for diagnosis in record["diagnoses"]:
        findings = diagnosis["findings"]
        return (findings[0]["bottleneck"] if findings else diagnosis["bottleneck"]), ""
    evaluation = record["evaluation"]
    why = f"{evaluation['status']} {evaluation['detail']}".strip()
    return "", f"no diagnosis: {why}"


def attempt(case: Case, given: argparse.Namespace) -> Outcome:
    """Profile one kernel and write its file; whatever goes wrong is the outcome's."""
    began = time.monotonic()
    record, failed = profiled(case, given)
    seconds = time.monotonic() - began
    if record is None:
        return Outcome(case, seconds, failed=failed)
    try:
        slim = slimmed(record, keep_raw=given.keep_raw)
        found, failed = first_finding(slim)
    except (KeyError, TypeError) as error:
        return Outcome(case, seconds, failed=f"not the JSON of a profile: {error!r}")
    text = json.dumps(slim, indent=1) + "\n"
    (given.output / f"{case.name}.json").write_text(text, encoding="utf-8")
    return Outcome(case, seconds, found, failed)


def table(rows: list[tuple[str, ...]]) -> str:
    """Return rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def summary(outcomes: list[Outcome]) -> str:
    """Return the counts in a sentence."""
    verdicts = [each.verdict for each in outcomes]
    asked = len(verdicts) - verdicts.count("-")
    slowest = max((each.seconds for each in outcomes), default=0.0)
    return (
        f"{verdicts.count('right')} of {asked} right, {verdicts.count('wrong')} wrong, "
        f"{verdicts.count('failed')} failed; {sum(each.seconds for each in outcomes):.0f} s in all, "
        f"{slowest:.1f} s at most"
    )


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", metavar="PROBLEM KERNEL[=EXPECTED]")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--faults", type=Path, default=FAULTS, help="a folder with faults.toml")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults alone")
    parser.add_argument("--no-faults", action="store_true", help="the pairs alone")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--profiler", action="append", default=[], help="instead of all that are installed; repeat"
    )
    parser.add_argument("--jobs", type=int, default=1, help="kernels at a time")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for each kernel")
    parser.add_argument("--keep-raw", action="store_true", help="keep raw metrics and all samples")
    return parser.parse_args()


def main() -> int:
    """Profile, write and count."""
    given = arguments()
    cases = [] if given.no_faults else faults(given.faults)
    if given.only and (unknown := set(given.only) - {case.name for case in cases}):
        raise SystemExit(f"no such fault in {given.faults}: {', '.join(sorted(unknown))}")
    cases = [case for case in cases if not given.only or case.name in given.only]
    given.output.mkdir(parents=True, exist_ok=True)
    outcomes = []
    with ThreadPoolExecutor(given.jobs) as threads:
        for outcome in threads.map(lambda case: attempt(case, given), cases + pairs(given.pairs)):
            outcomes.append(outcome)
            print(*outcome.row, sep=" | ", file=sys.stderr, flush=True)
    print(
        table(
            [
                ("name", "expected", "first finding", "verdict", "s"),
                *(each.row for each in outcomes),
            ]
        )
    )
    print(summary(outcomes))
    return int(any(each.verdict in ("wrong", "failed") for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
