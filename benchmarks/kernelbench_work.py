"""Bytes and operations of KernelBench's problems at full size, beside somebody else's figures.

python benchmarks/kernelbench_work.py --path KernelBench/KernelBench --level 1 --facts FILE.csv \
    -o benchmarks/results/NAME.json

Nothing is computed and no memory is taken: a machine without a GPU will do. KernelBench is not part
of this repository: clone ScalingIntelligence/KernelBench and give its folder. FILE.csv has a column
``problem`` (the file's name without .py), ``compulsory_bytes`` and ``matmul_conv_flops``; without
it, nothing is compared.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import platform
from pathlib import Path
from typing import Any

_COLUMNS = {"compulsory_bytes": "compulsory_bytes", "matrix_flops": "matmul_conv_flops"}
"""Ours, and the column of the other's."""


def main() -> None:
    """Analyse each problem of a level, then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="with the folders level1, level2")
    parser.add_argument("--level", default="1")
    parser.add_argument("--facts", type=Path, help="figures to compare with")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    facts = _facts(given.facts) if given.facts else {}
    folder = given.path / f"level{given.level}"
    found = []
    for path in sorted(folder.glob("*.py"), key=lambda path: int(path.name.split("_")[0])):
        line = {"problem": path.stem, **_one(path)}
        line["differs"] = _differs(line, facts.get(path.stem, {}))
        found.append(line)
        if "error" in line or line["differs"]:
            print(line["problem"], line.get("error") or json.dumps(line["differs"]), flush=True)
    report = {"recorded": _about(given), "summary": _summary(found, facts), "problems": found}
    given.output.write_text(_compact(report), encoding="utf-8")
    print(json.dumps(report["summary"], indent=1))


def _facts(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["problem"]: row for row in csv.DictReader(file)}


def _one(path: Path) -> dict[str, Any]:
    from kopt.errors import ProblemError
    from kopt.formats.kernelbench import KernelBenchFormat
    from kopt.model.work import work_of
    from kopt_torch.shapes import signature_by_shapes

    problem = KernelBenchFormat().kopt_load_problem(path)
    if problem is None:
        return {"error": "not a KernelBench problem"}
    try:
        signature = signature_by_shapes(problem).first
    except ProblemError as error:
        return {"error": str(error)[:300]}
    work = work_of(signature)
    return {
        "compulsory_bytes": work.compulsory_bytes,
        "matrix_flops": work.matrix_flops,
        "matrix": [part.to_json() for part in work.matrix],
        "vector_ops": work.vector_ops,
        "flops_per_byte": round(work.intensity or 0.0, 3),
        "operators": len(signature.trace),
        "argument_and_output_bytes": signature.compulsory_bytes,
        "dtypes": sorted({a.tensor.dtype for a in signature.arguments if a.tensor}),
    }


def _differs(line: dict[str, Any], fact: dict[str, str]) -> dict[str, Any]:
    """Return ours and theirs, and theirs over ours, for each figure that is not the same."""
    pairs = {
        name: (int(line[name]), int(fact[column]))
        for name, column in _COLUMNS.items()
        if name in line and fact.get(column)
    }
    return {
        name: {"ours": ours, "theirs": theirs, "ratio": round(theirs / ours, 4) if ours else None}
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    }


def _summary(found: list[dict[str, Any]], facts: dict[str, dict[str, str]]) -> dict[str, Any]:
    analysed = [line for line in found if "error" not in line]
    compared = [line for line in analysed if line["problem"] in facts]
    return {
        "problems": len(found),
        "analysed": len(analysed),
        "compared": len(compared),
        **{
            f"same_{name}": sum(name not in line["differs"] for line in compared)
            for name in _COLUMNS
        },
        "differs": [line["problem"] for line in compared if line["differs"]],
    }


def _about(given: argparse.Namespace) -> dict[str, Any]:
    import torch

    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(), "torch": torch.__version__,
        "level": given.level,
    }  # fmt: skip


def _compact(report: dict[str, Any]) -> str:
    """One problem a line."""
    head = {name: value for name, value in report.items() if name != "problems"}
    rows = ",\n".join(json.dumps(line) for line in report["problems"])
    return json.dumps(head, indent=1)[:-2] + f',\n "problems": [\n{rows}\n]\n}}\n'


if __name__ == "__main__":
    main()
