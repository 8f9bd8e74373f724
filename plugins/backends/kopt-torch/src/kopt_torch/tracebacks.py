"""Where in a Python candidate's file an exception came from."""

from __future__ import annotations

from pathlib import Path

_MOST_CAUSES = 50


def causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, outermost first."""
    found = [error]
    while (cause := found[-1].__cause__) is not None and len(found) < _MOST_CAUSES:
        found.append(cause)
    return found


def line_below(error: BaseException, folder: Path) -> int | None:
    """Return the line of the innermost frame in a file below ``folder``; None where there is none."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).is_relative_to(folder):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
