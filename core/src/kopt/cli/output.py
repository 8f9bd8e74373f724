"""Where the command line writes: data to stdout, progress to stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(data: Any) -> None:
    """Print one JSON document; NaN and infinities, which JSON does not have, become null."""
    from kopt.runs.files import finite

    sys.stdout.write(json.dumps(finite(data), allow_nan=False) + "\n")


def stdout() -> Console:
    """Return a console on stdout that does not cut lines where it is no terminal."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=200)


def plain_table(*columns: str) -> Table:
    """Return a table with a header and no lines; columns that end in ``>`` are right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left")
    return table
