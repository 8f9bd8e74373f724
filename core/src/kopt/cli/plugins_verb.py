"""``kopt plugins``: what is installed, and whether it works here."""

from __future__ import annotations

from typing import Annotated

import typer

from kopt.cli.options import AsJson, Verb


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("plugins", cls=Verb)(plugins)


def plugins(
    role: Annotated[str | None, typer.Option(help="Only plugins of this role.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load each plugin and ask it whether it works here.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the installed plugins (without importing one, unless --check is given)."""
    from kopt.cli.plugins import show_plugins

    return show_plugins(role, check, as_json)
