"""``kopt doctor``: whether this machine has what kopt needs, and how to get the rest."""

from __future__ import annotations

import typer

from kopt.cli.options import AsJson, Verb


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", cls=Verb)(doctor)


def doctor(as_json: AsJson = False) -> int:
    """Check Python, compilers, frameworks, GPU, profiler permission, LLM endpoint and plugins.

    Exits 1 where something that is needed is missing. Each red row has its fix.
    """
    from kopt.cli.output import plain_table, print_json, put
    from kopt.doctor import examine

    checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": [check.to_json() for check in checks]})
    else:
        from rich.markup import escape

        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        table = plain_table("CHECK", "STATE", "DETAIL", "FIX")
        for check in checks:
            state = f"[{colours[check.state]}]{check.state}[/]"
            table.add_row(escape(check.name), state, escape(check.detail), escape(check.fix))
        put(table)
    return 1 if any(check.state == "fail" for check in checks) else 0
