"""``kopt resume``: go on with an interrupted run."""

from __future__ import annotations

from typing import Annotated

import typer

from kopt.cli.options import AsJson, RunsDir, Verb, runs_root

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run's id, the beginning of it, its path, or 'last' (the default)."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("resume", cls=Verb)(resume)


def resume(run: RunName = "last", runs_dir: RunsDir = None, as_json: AsJson = False) -> int:
    """Go on with a run that was interrupted or killed; its budgets carry over."""
    from kopt.cli.finishing import show_run
    from kopt.cli.progress import ProgressReporter
    from kopt.optimize import resume as go_on
    from kopt.runs.store import RunFolder

    folder = RunFolder.open(run, runs_root(runs_dir))
    with ProgressReporter(folder.file.config.budget, folder.load().spend) as reporter:
        finished = go_on(folder, reporter)
    return show_run(finished, as_json=as_json)
