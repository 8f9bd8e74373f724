"""``kopt selftest``: whether this installation rejects kernels that cheat and accepts honest ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kopt.cli.options import AsJson, DeviceName, Verb

if TYPE_CHECKING:
    from kopt.selftest.cases import Finding


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("selftest", cls=Verb)(selftest)


def selftest(device: DeviceName = None, as_json: AsJson = False) -> int:
    """Judge kernels that cheat and honest ones, and show a scoreboard.

    Exits 1 where an attack is not caught by its own name, or an honest kernel is rejected.
    """
    from kopt.cli.progress import ProgressReporter
    from kopt.config import resolve
    from kopt.selftest.cases import CASES
    from kopt.selftest.runner import run, selected

    chosen = resolve({"device": device}).device
    cases = selected(CASES, chosen)
    with ProgressReporter() as steps:
        findings = sorted(run(cases, chosen, steps), key=lambda found: cases.index(found.case))
    if as_json:
        from kopt.cli.output import print_json

        print_json(findings_json(findings))
    else:
        _print(findings)
    return 0 if all(finding.right for finding in findings) else 1


def findings_json(findings: list[Finding]) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    attacks = [finding for finding in findings if finding.case.kind == "attack"]
    controls = [finding for finding in findings if finding.case.kind == "control"]
    return {
        "attacks": {
            f.case.name: {
                "expected": [str(status) for status in f.case.expected],
                "outcome": str(f.outcome), "caught": f.right,
            }
            for f in attacks
        },
        "controls": {
            f.case.name: {"outcome": str(f.outcome), "accepted": f.right} for f in controls
        },
        "summary": {
            "attacks": len(attacks), "caught": sum(f.right for f in attacks),
            "controls": len(controls), "accepted": sum(f.right for f in controls),
            "passed": all(f.right for f in findings),
        },
    }  # fmt: skip


def _print(findings: list[Finding]) -> None:
    from rich.markup import escape

    from kopt.cli.output import plain_table, put

    table = plain_table("KIND", "KERNEL", "RESULT", "OUTCOME", "EXPECTED", "DETAIL")
    for finding in sorted(findings, key=lambda f: f.case.kind):
        case = finding.case
        detail = "" if finding.right else _detail(finding)
        table.add_row(
            case.kind, case.name, _result(finding), str(finding.outcome),
            " or ".join(map(str, case.expected)), escape(detail),
        )  # fmt: skip
    summary = findings_json(findings)["summary"]
    put(
        table, "",
        f"{summary['caught']} of {summary['attacks']} attacks caught, "
        f"{summary['accepted']} of {summary['controls']} honest kernels accepted",
    )  # fmt: skip


def _result(finding: Finding) -> str:
    words = {"attack": ("caught", "MISSED"), "control": ("accepted", "REJECTED")}
    good, bad = words[finding.case.kind]
    return f"[green]{good}[/]" if finding.right else f"[red]{bad}[/]"


def _detail(finding: Finding) -> str:
    """Return why a case went wrong: known beforehand, or what kopt said, in one line."""
    from kopt.selftest.cases import KNOWN_OPEN

    said = " ".join(finding.detail.split())[:200]
    known = KNOWN_OPEN.get(finding.case.name)
    return f"known: {known}" if known else said
