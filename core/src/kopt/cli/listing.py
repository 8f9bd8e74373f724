"""Where the listings of ``kopt build --dump`` go, and where the table goes meanwhile."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from kopt.cli.output import put_path, write
from kopt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import TextIO

    from kopt.evaluator import Compiled

_COMMENTS = {"ptx": "//", "sass": "//"}
"""What begins a comment in a listing; ``#`` in the others."""


def put_aside() -> AbstractContextManager[TextIO]:
    """Send what is meant for stdout to stderr for a while: stdout is the listing's."""
    return redirect_stdout(sys.stderr)


def show_listings(built: Sequence[Compiled], kind: str | None, file: Path | None = None) -> None:
    """Write every listing to stdout, or to a file, each below a comment that says whose it is.

    No file is written where there is no listing. Raises ConfigError where the file cannot be written.
    """
    comment = _COMMENTS.get(kind or "", "#")
    parts = [
        f"{comment} {name} for {each.target}\n{text.rstrip()}\n"
        for each in built
        for name, text in each.listings.items()
    ]
    if file is None:
        write("\n".join(parts))
        return
    if not parts:  # nothing was compiled, and the table says why
        return
    try:
        file.write_text("\n".join(parts), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {file}: {error.strerror}; name another file") from error
    with put_aside():
        put_path(kind or "", file)
