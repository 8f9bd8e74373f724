"""``kopt init``: a problem folder from a function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kopt.cli.options import AsJson, Verb


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("init", cls=Verb)(init)


def init(
    function: Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="As model.py:rms_norm.")],
    folder: Annotated[
        Path | None, typer.Option("-d", "--folder", help="Where to write it (default: ./FUNCTION).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing folder.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a problem folder from a Python function; edit its shapes, then optimize it."""
    from kopt.cli.output import print_json, write
    from kopt.errors import ProblemError
    from kopt.formats.scaffold import scaffold

    file, colon, name = function.rpartition(":")
    if not colon or not file:
        raise ProblemError(f"{function!r} is not FILE:FUNCTION; write it as model.py:rms_norm")
    place = folder or Path(name)
    scaffold(Path(file), name, place, force=force)
    if as_json:
        print_json({"schema": 1, "problem": str(place)})
    else:
        write(f"wrote {place}/problem.toml; edit its shapes, then: kopt optimize {place}\n")
    return 0
