"""Where the command line writes: data to stdout, as tables on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_UNWRAPPED = 100_000


def print_json(data: Any) -> None:
    """Print one JSON document; NaN and infinities, which JSON does not have, become null."""
    from kopt.runs.files import finite

    write(json.dumps(finite(data), allow_nan=False) + "\n")


def put(*parts: RenderableType) -> None:
    """Print tables, and text with rich's markup, below each other.

    On a terminal they are wrapped to its width; elsewhere each row is one line, whatever its length.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        text = _rendered(Console(highlight=False), parts)
    else:
        wide = Console(highlight=False, width=_UNWRAPPED, file=io.StringIO(), no_color=True)
        text = "".join(f"{line.rstrip()}\n" for line in _rendered(wide, parts).splitlines())
    write(text)


def put_path(label: str, path: object) -> None:
    """Print a path on a line of its own, never wrapped, so that it can be copied."""
    write(f"{label} {path}\n")


def _rendered(console: Any, parts: tuple[RenderableType, ...]) -> str:
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    text: str = captured.get()
    return text


def write(text: str) -> None:
    """Write to stdout; a reader that has gone away (``| head``) has seen enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain_table(*columns: str) -> Table:
    """Return a table with a header and no lines; columns that end in ``>`` are right-aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        side = "right" if column.endswith(">") else "left"
        table.add_column(column.rstrip(">"), justify=side, overflow="fold")  # type: ignore[arg-type]
    return table
