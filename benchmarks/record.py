"""Runs `kopt optimize --json` on problems and records the results with versions and raw samples.

python benchmarks/record.py -o benchmarks/results/NAME.json PROBLEM [PROBLEM ...] -- --max-time 2m
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def one(problem: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "kopt", "optimize", problem, "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"{problem}: kopt exited with {done.returncode} and printed nothing")
    result = json.loads(done.stdout)
    result["source"] = _source(result)
    for private in ("folder", "run"):  # paths of the machine that ran it
        result.pop(private, None)
    if result.get("best"):
        result["best"]["source_path"] = Path(result["best"]["source_path"]).name
    return {
        "problem": Path(problem).name, "arguments": arguments, "exit_code": done.returncode,
        "result": result,
    }  # fmt: skip


def _source(result: dict[str, object]) -> str | None:
    best = result.get("best")
    return Path(best["source_path"]).read_text(encoding="utf-8") if isinstance(best, dict) else None


def main() -> None:
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(sys.argv[1:split])
    results = [one(problem, sys.argv[split + 1 :]) for problem in given.problems]
    record = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "results": results,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for entry in results:
        best = entry["result"].get("best")
        summary = f"{best['latency_ms']:.4f} ms" if best else "no candidate"
        print(f"{entry['problem']}: {entry['result']['status']}, {summary}")


if __name__ == "__main__":
    main()
