"""Solves one problem of a suite in a process of its own (``python -m``); see kopt.suites.beside."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from kopt.cli.progress import ProgressReporter
from kopt.errors import KoptError
from kopt.model.budget import Budget
from kopt.model.problem import Problem
from kopt.runs.store import RunFolder
from kopt.suites.records import SuiteSettings
from kopt.suites.runner import solve
from kopt.worker.limits import die_with_parent


def main() -> int:
    """Read what is asked from stdin; write the run's folder, or the error, to stdout as JSON."""
    die_with_parent(signal.SIGINT)
    asked = json.load(sys.stdin)
    problem = Problem.model_validate(asked["problem"])
    settings = SuiteSettings.model_validate(asked["settings"])
    left = RunFolder(Path(asked["left"])) if asked["left"] else None
    spend = left.load().spend if left else None
    budget = Budget(seconds=settings.seconds, trials=settings.trials)
    try:
        with ProgressReporter(budget, spend) as reporter:
            run = solve(problem, settings, Path(asked["runs"]), left, reporter)
        answer = {"folder": str(run.folder)}
    except KoptError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
