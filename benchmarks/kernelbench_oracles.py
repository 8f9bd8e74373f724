"""What KernelBench's own protocol lets through on its problems, and what kopt's verifier does.

python benchmarks/kernelbench_oracles.py --path KernelBench/KernelBench --levels 1 2 --shrink \
    --device cpu -o benchmarks/results/NAME.json

KernelBench is not part of this repository: clone ScalingIntelligence/KernelBench and give its
folder. Only names and numbers are recorded. Each problem runs in a process of its own; lines go to
OUTPUT.lines as they come, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

_TRIVIAL = ("zeros", "constant", "stale", "NaN everywhere", "mean of each row")
_PROCESSES = multiprocessing.get_context("spawn")


def main() -> None:
    """Run all problems, then summarise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="with the folders level1, level2")
    parser.add_argument("--levels", nargs="+", default=["1", "2"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shrink", action="store_true", help="at sizes for a CPU")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a problem")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    lines = given.output.with_suffix(".lines")
    done = {line["problem"] for line in _read(lines)}
    paths = [
        str(path.relative_to(given.path))
        for level in given.levels
        for path in sorted((given.path / f"level{level}").glob("*.py"), key=_number)
    ]
    with ThreadPoolExecutor(given.jobs) as pool, lines.open("a", encoding="utf-8") as file:
        own = threading.local()

        def ask(name: str) -> dict[str, Any]:
            own.worker = getattr(own, "worker", None) or _Worker()
            found: dict[str, Any] = own.worker.ask(name, given)
            return found

        for line in pool.map(ask, [p for p in paths if p not in done]):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(line["problem"], line.get("error", f"{line.get('seconds')} s"), flush=True)
    found = [line for line in _read(lines) if line["problem"] in set(paths)]
    report = {"recorded": _about(given), "summary": _summary(found), "problems": found}
    given.output.write_text(_compact(report), encoding="utf-8")
    print(json.dumps(report["summary"], indent=1))


def _number(path: Path) -> int:
    return int(path.name.split("_")[0])


def _read(lines: Path) -> list[dict[str, Any]]:
    if not lines.exists():
        return []
    return [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]


class _Worker:
    """A process that problems run in, one after the other; ended by one that takes too long."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection

    def ask(self, name: str, given: argparse.Namespace) -> dict[str, Any]:
        """Run one problem; what ends it is in the answer."""
        start = time.monotonic()
        if self._process is None or not self._process.is_alive():
            self._pipe, there = _PROCESSES.Pipe()
            self._process = _PROCESSES.Process(target=_serve, args=(there,), daemon=True)
            self._process.start()
            there.close()
        found: dict[str, Any] = {"error": f"skipped: more than {given.timeout:g} s"}
        try:
            self._pipe.send((given.path / name, given.device, given.shrink))
            if self._pipe.poll(given.timeout):
                found = self._pipe.recv()
            else:
                self._process.kill()
                self._process.join()
        except (EOFError, OSError):
            self._process.join()
            found = {"error": f"its process ended with exit code {self._process.exitcode}"}
        return {"problem": name, "seconds": round(time.monotonic() - start, 1), **found}


def _serve(pipe: Connection) -> None:
    while True:
        try:
            path, device, shrink = pipe.recv()
        except EOFError:  # the end
            return
        try:
            pipe.send(_one(path, device, shrink=shrink))
        except Exception as error:  # noqa: BLE001 - a problem's code may raise anything; it is recorded
            pipe.send({"error": f"{type(error).__name__}: {error}"[:300]})


def _one(path: Path, device: str, *, shrink: bool) -> dict[str, Any]:
    import torch
    from kernelbench_protocol import Protocol
    from kernelbench_sizes import shrunk

    torch.set_num_threads(1)
    source = path.read_text(encoding="utf-8")
    sizes: dict[str, Any] = {}
    if shrink:
        source, sizes = shrunk(source)
    found: dict[str, Any] = {"sizes": sizes, **_ours(source, path.stem, device)}
    for label, dtype in (
        ("kernelbench_float32", torch.float32),
        ("kernelbench_float16", torch.float16),
    ):
        try:
            accepted = Protocol(source, device, dtype).accepted()
        except Exception as error:  # noqa: BLE001 - a problem's code may raise anything; it is recorded
            found[label] = {"error": f"{type(error).__name__}: {error}"[:200]}
            continue
        right = accepted.pop("right")
        equal = set(found["equivalent"])
        found[label] = {
            "accepts": sorted(name for name, passed in accepted.items() if passed and name not in equal),
            "rejects_the_reference": not right,
        }  # fmt: skip
    return found


def _ours(source: str, name: str, device: str) -> dict[str, Any]:
    from kopt.model.problem import Problem, ReferenceSource
    from kopt_torch.reference import TorchReference
    from kopt_verify.battery import check_oracle

    kind = ReferenceSource(kind="kernelbench", source=source, entry="Model")
    problem = Problem(name=name, format="kernelbench", reference=kind)
    reference = TorchReference(problem, "cuda" if device == "cuda" else "cpu")
    start = time.monotonic()
    report = check_oracle(reference)
    reference.close()
    return {
        "battery_seconds": round(time.monotonic() - start, 2),
        "distributions": list(report.distributions),
        "tried": len(report.findings),
        "equivalent": [f.mutation for f in report.findings if f.equivalent],
        "survivors": {f.mutation: f.evidence[:160] for f in report.survivors},
        "native_accepts": [
            f.mutation for f in report.findings if not f.native_rejects and not f.equivalent
        ],
        "rejected_by_sharper_only": {
            f.mutation: f.rejected_by[0] for f in report.findings
            if f.rejected_by and f.rejected_by[0] not in report.distributions[:2]
        },
        "notes": [note for note in report.notes if not note.startswith("not tried")],
    }  # fmt: skip


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Count per level what each protocol lets through, equivalent results left out."""
    return {
        level: _counts([line for line in found if line["problem"].startswith(level)])
        for level in sorted({line["problem"].split("/")[0] for line in found})
    }


def _counts(lines: list[dict[str, Any]]) -> dict[str, Any]:
    judged = [line for line in lines if "error" not in line]
    counts: dict[str, Any] = {
        "problems": len(lines), "judged": len(judged),
        "errors": {line["problem"]: line["error"] for line in lines if "error" in line},
        "known_wrong_results": sum(line["tried"] - len(line["equivalent"]) for line in judged),
        "equivalent": sum(len(line["equivalent"]) for line in judged),
    }  # fmt: skip
    ways = {label: [_accepts(line, label) for line in judged] for label in (
        "kernelbench_float32", "kernelbench_float16", "kopt_native_inputs", "kopt")}  # fmt: skip
    for label, accepted in ways.items():
        counts[label] = {
            "accepted": sum(map(len, accepted)),
            "problems_with_any": sum(map(bool, accepted)),
            "problems_with_a_trivial_one": sum(
                any(n in _TRIVIAL or n.startswith("input ") for n in names) for names in accepted
            ),
        }
    counts["not_run_in_float16"] = sum("error" in line["kernelbench_float16"] for line in judged)
    counts["degenerate"] = {
        line["problem"]: sorted(line["survivors"]) for line in judged if line["survivors"]
    }
    return counts


def _accepts(line: dict[str, Any], label: str) -> list[str]:
    if label == "kopt":
        return list(line["survivors"])
    if label == "kopt_native_inputs":
        return list(line["native_accepts"])
    return list(line[label].get("accepts", []))


def _about(given: argparse.Namespace) -> dict[str, Any]:
    import torch

    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}", "python": platform.python_version(),
        "torch": torch.__version__, "device": given.device, "shrunk": given.shrink,
        "levels": given.levels,
    }  # fmt: skip


def _compact(report: dict[str, Any]) -> str:
    """One problem a line."""
    head = {name: value for name, value in report.items() if name != "problems"}
    rows = ",\n".join(json.dumps(line) for line in report["problems"])
    return json.dumps(head, indent=1)[:-2] + f',\n "problems": [\n{rows}\n]\n}}\n'


if __name__ == "__main__":
    main()
