"""Shows how kernels do at sizes that no tuning saw, from records of benchmarks/shapes.

python benchmarks/shapes_table.py RECORD [RECORD ...]

A RECORD is what starters_judged.py or `kopt suite run benchmarks/shapes --each-workload` wrote; what
several have counts as in the last. For each family: the speedup over the fastest baseline at its tuned
size, at the others, and those over that.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

TUNED, OTHERS = "tuned", ("odd", "prime", "larger")
GOAL = 0.8
"""Of the tuned size's speedup."""


def judged(row: dict[str, Any]) -> float | None:
    """Return the best kernel's speedup in a record of starters_judged.py; None: none was right."""
    times = [
        each["measurement"]["latency_ms"] for each in row.get("candidates", ())
        if each["measurement"] is not None
    ]  # fmt: skip
    return min(row["baselines"].values()) / min(times) if times else None


def searched(row: dict[str, Any]) -> float | None:
    """Return what kopt returns over the best baseline, in a suite's record; None: it failed."""
    best = row["speedup"].get("best")
    return None if best is None else float(best["median"])


def speedups(record: dict[str, Any]) -> dict[str, float | None]:
    """Return a speedup for each ``FAMILY-SIZE``."""
    if "rows" in record:
        return {row["name"]: searched(row) for row in record["rows"]}
    return {name: judged(row) for name, row in record["problems"].items()}


def table(found: dict[str, float | None]) -> list[str]:
    """Return a Markdown table, and how many sizes keep so much of their family's speedup."""
    families: dict[str, dict[str, float | None]] = defaultdict(dict)
    for name, speedup in found.items():
        family, _, size = name.rpartition("-")
        families[family][size] = speedup
    lines = [f"| family | {TUNED} | {' | '.join(OTHERS)} |", f"|{' --- |' * (2 + len(OTHERS))}"]
    kept = asked = 0
    for family, sizes in sorted(families.items()):
        tuned = sizes.get(TUNED)
        cells = [_times(tuned)]
        for size in OTHERS:
            here = sizes.get(size)
            share = here / tuned if here and tuned else None
            asked += size in sizes
            kept += share is not None and share >= GOAL
            cells.append(f"{_times(here)} ({share:.2f})" if share is not None else _times(here))
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return [*lines, "", f"{kept} of {asked} sizes keep {GOAL} of the tuned size's speedup"]


def _times(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}x"


def main() -> None:
    """Print the table of all records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, nargs="+")
    found: dict[str, float | None] = {}
    for path in parser.parse_args().record:
        found |= speedups(json.loads(path.read_text(encoding="utf-8")))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
