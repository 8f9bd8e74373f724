"""Puts runs with a language model into one record: what was asked apart, all that was found out.

    python benchmarks/mailbox_record.py RUN... -o NAME.json [--exchanges FOLDER]

A RUN is the folder of a run that has ended. Sources are named by their ids. With ``--exchanges`` the
requests with their answers are copied to ``FOLDER/PROBLEM``, where a replay finds them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from kopt.runs.events import Confirmed, Diagnosed, Evaluated, Opened
from kopt.runs.journal import read_journal
from kopt.runs.sources import source_id
from kopt.runs.store import RunFolder


def main() -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs that have ended")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the record")
    parser.add_argument("--exchanges", type=Path, help="where requests and answers are copied to")
    parser.add_argument("--what", default="", help="a sentence about where and how they were made")
    given = parser.parse_args()
    records = []
    for path in given.runs:
        folder = RunFolder(path)
        run = folder.load().finished
        if run is None or run.status == "interrupted":
            print(f"{path} has not ended: kopt resume {folder.id}", file=sys.stderr)
            return 1
        records.append(record_of(folder))
        if given.exchanges is not None:
            to = given.exchanges / folder.file.problem.name
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(path / "completions", to)
    text = json.dumps({"what": given.what, "runs": records}, indent=1, ensure_ascii=False)
    given.output.write_text(text + "\n", encoding="utf-8")
    return 0


def record_of(folder: RunFolder) -> dict[str, Any]:
    """Return what a run was asked for, what it found out, and how it ended."""
    events = [entry.event for entry in read_journal(folder.path).entries]
    file, state = folder.file, folder.load()
    opened = [event.opening for event in events if isinstance(event, Opened)][-1]
    assert state.finished is not None
    return {
        "problem": file.problem.to_json(), "kopt": file.kopt, "plugins": file.plugins,
        "strategies": file.config.strategies, "llm": file.config.llm,
        "budget": file.config.budget.to_json(),
        "status": state.finished.status, "reason": state.finished.reason,
        "spend": state.spend.to_json(), "copy_ms": next(iter(opened.copy_ms.values())),
        "device": opened.device.to_json(), "baselines": named([b.to_json() for b in opened.baselines]),
        "evaluations": named([e.evaluation.to_json() for e in events if isinstance(e, Evaluated)]),
        "diagnoses": [
            {"parent": e.parent, "diagnoses": [each.to_json() for each in e.diagnoses]}
            for e in events if isinstance(e, Diagnosed)
        ],
        "confirmed": named([e.evaluation.to_json() for e in events if isinstance(e, Confirmed)]),
    }  # fmt: skip


def named(value: Any) -> Any:
    """Return records with ids in the places of their candidates' sources."""
    if isinstance(value, list):
        return [named(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: named(each) for key, each in value.items() if key != "source"}
    if "source" in value:
        found["source_id"] = source_id(value["source"])
    return found


if __name__ == "__main__":
    sys.exit(main())
