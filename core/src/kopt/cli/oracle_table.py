"""What known-wrong results do on a problem, as JSON and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kopt.model.oracle import OracleFinding, OracleReport


def oracle_json(report: OracleReport, problem: str) -> dict[str, Any]:
    """Return what ``kopt verify PROBLEM --json`` prints."""
    from kopt.cli.outcome import SCHEMA

    survivors = [finding.mutation for finding in report.survivors]
    return {"schema": SCHEMA, "problem": problem, **report.to_json(), "survivors": survivors}


def print_oracle(report: OracleReport) -> None:
    """Print a row for each known-wrong result, then what follows from them."""
    from rich.markup import escape

    from kopt.cli.output import plain_table, put

    table = plain_table("WRONG RESULT", f"TOLERANCE {report.tolerance:g}", "KOPT", "REJECTED BY")
    for finding in report.findings:
        bare = "lets it through" if finding.tolerance_accepts else "rejects"
        where = ", ".join(finding.rejected_by)
        table.add_row(escape(finding.mutation), bare, _word(finding), escape(where))
    put(table, "", _summary(report))
    for note in report.notes:
        put(escape(note))


def _word(finding: OracleFinding) -> str:
    if finding.survives:
        return "[red]lets it through[/]"
    return "[dim]equal to right[/]" if finding.equivalent else "[green]rejects[/]"


def _summary(report: OracleReport) -> str:
    wrong = [finding for finding in report.findings if not finding.equivalent]
    bare = sum(finding.tolerance_accepts for finding in wrong)
    return (
        f"of {len(wrong)} known-wrong results, a tolerance of {report.tolerance:g} on the problem's "
        f"own inputs lets {bare} through, kopt {len(report.survivors)}"
    )
