"""kopt's own verdicts on the same kernels, in a process of their own: `python -m rivals.itself OUTPUT NAME...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kopt.selftest.runner import run
from rivals.board import cpu_cases


def main() -> None:
    """Judge the named cases and write name -> outcome, whether it was right, and the detail."""
    wanted = set(sys.argv[2:])
    cases = [case for case in cpu_cases() if not wanted or case.name in wanted]
    found = {
        finding.case.name: {
            "outcome": str(finding.outcome), "right": finding.right,
            "detail": " ".join(finding.detail.split())[:200],
        }
        for finding in run(cases, "cpu")
    }  # fmt: skip
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
