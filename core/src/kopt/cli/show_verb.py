"""``kopt show``: the runs, one run's table, or one candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import AsJson, RunsDir, Verb, runs_root

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.model.evaluation import Evaluation
    from kopt.model.run import Run
    from kopt.runs.state import RunState
    from kopt.runs.store import RunFolder, RunSummary


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("show", cls=Verb)(show)


def show(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="An id, its beginning, a path, or 'last'; none: list the runs."
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option("--candidate", metavar="ID", help="A candidate's id, or its beginning."),
    ] = None,
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> int:
    """Show the runs, one run's candidates, or one candidate with its source and evidence."""
    from kopt.errors import ConfigError
    from kopt.runs.store import RunFolder, list_runs

    root = runs_root(runs_dir)
    if run is None:
        if candidate is not None:
            raise ConfigError(f"--candidate needs a run: kopt show last --candidate {candidate}")
        return _show_list(list_runs(root), as_json)
    folder = RunFolder.open(run, root)
    if candidate is not None:
        return _show_candidate(folder, candidate, as_json)
    return _show_run(folder, as_json)


def _show_list(runs: Sequence[RunSummary], as_json: bool) -> int:
    from rich.markup import escape

    from kopt.cli.output import plain_table, print_json, put

    rows = [
        {"run": r.id, "problem": r.problem, "status": r.status or r.fault, "path": str(r.path)}
        for r in runs
    ]
    if as_json:
        print_json({"schema": 1, "runs": rows})
        return 0
    table = plain_table("RUN", "PROBLEM", "STATUS")
    for row in rows:
        table.add_row(*(escape(row[key]) for key in ("run", "problem", "status")))
    put(table if rows else "no runs here; kopt optimize PROBLEM makes one")
    return 0


def _show_run(folder: RunFolder, as_json: bool) -> int:
    from kopt.cli.accounts_table import accounts_json, accounts_of, print_accounts
    from kopt.cli.finishing import print_run
    from kopt.cli.outcome import evaluation_json, run_json
    from kopt.cli.output import print_json, put
    from kopt.runs.journal import read_journal
    from kopt.runs.state import state_of

    entries = read_journal(folder.path, folder.sources).entries
    state = state_of(folder.file.problem, folder.file.config, entries)
    run = _as_run(folder, state)
    accounts = accounts_of(entry.event for entry in entries)
    if as_json:
        evaluations = [evaluation_json(evaluation) for evaluation in state.evaluations]
        extra = {"evaluations": evaluations, "accounts": accounts_json(accounts)}
        print_json({**run_json(run), **extra})
        return 0
    if state.evaluations:
        put(_table(state, run), "")
    if accounts is not None:
        print_accounts(accounts)
    print_run(run)
    return 0


def _as_run(folder: RunFolder, state: RunState) -> Run:
    """Return a run as it ended, or as far as its journal tells where it has not."""
    from kopt.model.run import Run
    from kopt.runs.lock import is_held

    running = is_held(folder.path)
    if (result := folder.read_result()) is not None and not running:
        return result
    opening = state.opening
    return Run(
        id=folder.id, folder=folder.path, status="running" if running else "interrupted",
        problem=state.problem, config=state.config, device=opening.device if opening else None,
        baselines={b.name: b.measurement for b in opening.baselines} if opening else {},
        failed_baselines=opening.failed_baselines if opening else {},
        trials=dict(sorted(Counter(str(e.status) for e in state.evaluations).items())),
        spend=state.spend, plugins=folder.file.plugins,
    )  # fmt: skip


def _table(state: RunState, run: Run) -> Table:
    from rich.markup import escape

    from kopt.cli.output import plain_table

    baseline = state.opening.fastest if state.opening else ""
    table = plain_table("#>", "CANDIDATE", "STATUS", "MS>", f"OVER {baseline}>", "BY", "IDEA")
    for number, evaluation in enumerate(state.evaluations, 1):
        best = run.best is not None and run.best.id == evaluation.id
        cells = (escape(cell) for cell in _row(evaluation, baseline))
        table.add_row(f"{number}{'*' if best else ' '}", *cells, style="bold" if best else None)
    return table


def _row(evaluation: Evaluation, baseline: str) -> list[str]:
    measurement = evaluation.measurement
    speedup = measurement.speedup.get(baseline) if measurement else None
    same = f" (as {evaluation.same_as[:8]})" if evaluation.same_as else ""
    return [
        evaluation.id[:8], f"{evaluation.status}{same}",
        f"{measurement.latency_ms:.4f}" if measurement else "",
        f"{speedup.median:.3f}x" if speedup else "",
        evaluation.candidate.strategy, evaluation.candidate.idea,
    ]  # fmt: skip


def _show_candidate(folder: RunFolder, prefix: str, as_json: bool) -> int:
    from rich.markup import escape

    from kopt.cli.outcome import evaluation_json, speedups, stage_table
    from kopt.cli.output import print_json, put, put_path, write
    from kopt.model.kernel_file import settled_source

    evaluation = _find(folder.load(), prefix, folder.id)
    path = folder.source_path(evaluation.candidate).absolute()
    if as_json:
        extra = {"source_path": str(path), "source": evaluation.candidate.text}
        print_json({**evaluation_json(evaluation), **extra})
        return 0
    candidate, measurement = evaluation.candidate, evaluation.measurement
    put(f"{evaluation.id} [bold]{evaluation.status}[/]")
    put(escape(f"{candidate.strategy}: {candidate.idea}"))
    if candidate.chosen:
        put(escape("knobs: " + ", ".join(f"{k}={v}" for k, v in candidate.chosen.items())))
    if evaluation.same_as:
        put(f"the same binary and launches as {evaluation.same_as}: verdict and times are its")
    if evaluation.detail:
        put(escape(evaluation.detail))
    if evaluation.verifications:
        put("", stage_table(evaluation), "")
    if measurement is not None:
        put(f"{measurement.latency_ms:.4f} ms, {escape(speedups(measurement))}")
    put_path("source:", path)
    write(f"\n{settled_source(candidate).rstrip()}\n")
    return 0


def _find(state: RunState, prefix: str, run: str) -> Evaluation:
    from kopt.errors import RunStoreError

    found = [e for e in state.evaluations if e.id.startswith(prefix)]
    if len(found) != 1:
        known = ", ".join(e.id[:8] for e in (found or state.evaluations)[:8])
        what = "several candidates begin" if found else "no candidate begins"
        raise RunStoreError(f"{what} with {prefix!r} in run {run}; for example: {known or 'none'}")
    return found[0]
