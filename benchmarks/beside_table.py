"""Shows kopt's starters and somebody else's kernels, from records of starters_judged.py --beside.

python benchmarks/beside_table.py RECORD [RECORD ...]

Times are in microseconds. "kopt" is the fastest starter that is right, or the fastest baseline where no
starter is faster; "copy" a plain copy of as many bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from starters_judged import BESIDE

COLUMNS = ("problem", "copy", "eager", "torch.compile", "fastest baseline", "other", "kopt",
           "over the other", "over a copy", "what")  # fmt: skip


def row_of(name: str, found: dict[str, Any]) -> list[str]:
    """Return a problem's cells."""
    baselines: dict[str, float] = found["baselines"]
    best = min(baselines, key=lambda each: baselines[each])
    times = {best: baselines[best]}
    other, status = None, "none"
    for each in found["candidates"]:
        ms = (each["measurement"] or {}).get("latency_ms")
        if each["idea"].startswith(BESIDE):
            other, status = ms, each["status"]
        elif ms is not None:
            times[f"{each['language']}: {each['idea']}"] = ms
    chosen = min(times, key=lambda each: times[each])
    copy = next(iter(found["copy_ms"].values()))
    cells = [copy, baselines.get("eager"), baselines.get("torch.compile"), baselines[best], other]
    return [
        name, *map(_micro, cells[:-1]), _micro(other) or status, _micro(times[chosen]),
        f"{other / times[chosen]:.2f}x" if other else "", f"{times[chosen] / copy:.2f}x", chosen,
    ]  # fmt: skip


def _micro(ms: float | None) -> str:
    return "" if ms is None else f"{ms * 1000:.1f}"


def main() -> None:
    """Print a table of all records' problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+", metavar="record")
    found: dict[str, dict[str, Any]] = {}
    for path in parser.parse_args().records:
        found |= json.loads(path.read_text(encoding="utf-8"))["problems"]
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name, row in found.items():
        cells = row_of(name, row) if "baselines" in row else [name, row.get("failed", "")]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
