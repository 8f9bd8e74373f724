"""``kopt show``: a run's table, or one candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import AsJson, RunsDir

if TYPE_CHECKING:
    from kopt.model.evaluation import Evaluation
    from kopt.runs.state import RunState
    from kopt.runs.store import RunFolder


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("show")(show)


def show(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="As for resume; none: list the runs.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="A candidate's id, or the beginning of it.")
    ] = None,
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> int:
    """Show the runs, one run's candidates, or one candidate with its source and evidence."""
    from kopt.env import runs_folder
    from kopt.runs.store import RunFolder, list_runs

    root = runs_dir or runs_folder()
    if run is None:
        return _show_list(list_runs(root), as_json)
    folder = RunFolder.open(run, root)
    if candidate is not None:
        return _show_candidate(folder, candidate, as_json)
    return _show_run(folder, as_json)


def _show_list(runs: list[object], as_json: bool) -> int:
    from kopt.cli.output import plain_table, print_json, stdout

    rows = [
        {"run": r.id, "problem": r.problem, "status": r.status or r.fault, "path": str(r.path)}
        for r in runs
    ]  # type: ignore[attr-defined]
    if as_json:
        print_json({"schema": 1, "runs": rows})
        return 0
    table = plain_table("RUN", "PROBLEM", "STATUS")
    for row in rows:
        table.add_row(row["run"], row["problem"], row["status"])
    stdout().print(table if rows else "no runs here; kopt optimize PROBLEM makes one")
    return 0


def _show_run(folder: RunFolder, as_json: bool) -> int:
    from kopt.cli.finishing import show_run
    from kopt.cli.outcome import evaluation_json, run_json
    from kopt.cli.output import plain_table, print_json, stdout

    state, result = folder.load(), folder.read_result()
    if as_json:
        data = run_json(result) if result else {"schema": 1, "run": folder.id, "status": "interrupted"}
        data["evaluations"] = [evaluation_json(e) for e in state.evaluations]
        print_json(data)
        return 0
    baseline = state.opening.fastest if state.opening else ""
    table = plain_table("#>", "CANDIDATE", "STATUS", "ms>", f"against {baseline}>", "BY", "IDEA")
    for number, evaluation in enumerate(state.evaluations, 1):
        table.add_row(str(number), *_row(evaluation, baseline))
    stdout().print(table)
    if result:
        show_run(result, as_json=False)
    else:
        stdout().print(f"not finished: kopt resume {folder.id}")
    return 0


def _row(evaluation: Evaluation, baseline: str) -> list[str]:
    measurement = evaluation.measurement
    speedup = measurement.speedup.get(baseline) if measurement else None
    return [
        evaluation.id[:12], str(evaluation.status),
        f"{measurement.latency_ms:.4f}" if measurement else "",
        f"{speedup.median:.3f}x" if speedup else "",
        evaluation.candidate.strategy, evaluation.candidate.idea,
    ]  # fmt: skip


def _show_candidate(folder: RunFolder, prefix: str, as_json: bool) -> int:
    from rich.markup import escape

    from kopt.cli.outcome import evaluation_json
    from kopt.cli.output import print_json, stdout

    evaluation = _find(folder.load(), prefix, folder.id)
    if as_json:
        print_json({**evaluation_json(evaluation), "source": evaluation.candidate.source})
        return 0
    console = stdout()
    console.print(f"{evaluation.id} {evaluation.status} {escape(evaluation.detail)}")
    for verification in evaluation.verifications:
        for stage in verification.stages:
            console.print(f"  {stage.stage:<10} {stage.outcome:<8} {escape(stage.evidence)}")
    console.print(escape(evaluation.candidate.source), soft_wrap=True)
    return 0


def _find(state: RunState, prefix: str, run: str) -> Evaluation:
    from kopt.errors import RunStoreError

    found = [e for e in state.evaluations if e.id.startswith(prefix)]
    if len(found) != 1:
        known = ", ".join(e.id[:12] for e in (found or state.evaluations)[:8])
        what = "several candidates begin" if found else "no candidate begins"
        raise RunStoreError(f"{what} with {prefix!r} in run {run}; for example: {known or 'none'}")
    return found[0]
