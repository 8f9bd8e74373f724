"""``kopt plugins``: what is installed and, if asked, whether it works here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from kopt.cli.output import print_json
from kopt.errors import (
    KoptError,
    PluginIncompatibleError,
    PluginOptionsError,
    PluginUnavailableError,
)
from kopt.plugins.catalog import PluginInfo, conflicts, installed

if TYPE_CHECKING:
    from kopt.model.check import Check

PluginStatus = Literal[
    "installed", "ready", "needs options", "unavailable", "incompatible", "conflict", "broken"
]

COLUMNS = ("ROLE", "NAME", "DISTRIBUTION", "STATUS", "DETAIL")

_STYLES = {"ready": "green", "installed": "none", "needs options": "none", "unavailable": "yellow"}


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin and what is known of it."""

    role: str
    name: str
    distribution: str
    version: str
    status: PluginStatus
    detail: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as the table shows it."""
        distribution = f"{self.distribution} {self.version}"
        return self.role, self.name, distribution, self.status, self.detail


def show_plugins(
    role: str | None,
    check: bool,
    as_json: bool,
    options: Mapping[str, Mapping[str, object]] | None = None,
) -> int:
    """Print the plugins of ``role``, or all, to standard output; return the exit code.

    Without ``check`` no plugin is imported. With it each is loaded, bound and asked whether it
    can work here; the code is 1 if any is not ready, and does not merely need options.

    :param options: by ``role.name``, as configured; used where a plugin is loaded.
    Raises UnknownPluginError for an unknown role.
    """
    infos = installed(role)
    rows = _listed(infos)
    if check:
        rows = [
            _checked(row, info, (options or {}).get(f"{info.role}.{info.name}", {}))
            for row, info in zip(rows, infos, strict=True)
        ]
    if as_json:
        print_json({"schema": 1, "plugins": [asdict(row) for row in rows]})
    else:
        _print_table(rows)
    return int(check and any(row.status not in ("ready", "needs options") for row in rows))


def _listed(infos: Sequence[PluginInfo]) -> list[PluginRow]:
    """Say what metadata alone tells."""
    doubled = conflicts(infos)
    rows = []
    for info in infos:
        status: PluginStatus = "installed"
        detail = ""
        if info.unmet:
            status, detail = "incompatible", f"needs {', '.join(info.unmet)}"
        elif (info.role, info.name) in doubled:
            status, detail = "conflict", f"name it as {info.reference}"
        rows.append(
            PluginRow(info.role, info.name, info.distribution, info.version, status, detail)
        )
    return rows


def _checked(row: PluginRow, info: PluginInfo, options: Mapping[str, object]) -> PluginRow:
    if row.status != "installed":
        return row
    try:
        # What a plugin prints while it is imported must not end up in the table or the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            status, detail = _probe(info, options)
    except PluginOptionsError as error:
        status = "unavailable" if options else "needs options"
        detail = _without_label(error, info)
    except PluginUnavailableError as error:
        status, detail = "unavailable", _without_label(error, info)
    except PluginIncompatibleError as error:
        status, detail = "incompatible", _without_label(error, info)
    except KoptError as error:
        status, detail = "broken", _without_label(error, info)
    return replace(row, status=status, detail=detail)


def _probe(info: PluginInfo, options: Mapping[str, object]) -> tuple[PluginStatus, str]:
    """Load and bind one plugin and ask it. Raises KoptErrors."""
    from kopt.hooks import Hooks

    hooks = Hooks.load([(info.role, info.reference, options)])
    checks = hooks.kopt_check()
    if hooks.failures:
        return "broken", f"kopt_check raised {hooks.failures[0].error}"
    failed = [check for check in checks if check.state == "fail"]
    if failed:
        return "unavailable", _words(failed)
    return "ready", _words([check for check in checks if check.state == "warn"])


def _words(checks: Sequence[Check]) -> str:
    parts = (f"{c.name}: {c.detail}".rstrip(": ") + (f"; {c.fix}" if c.fix else "") for c in checks)
    return " | ".join(parts)


def _without_label(error: KoptError, info: PluginInfo) -> str:
    """Return the message without what the row's other cells say."""
    return str(error).removeprefix(info.label).lstrip(": ")


def _print_table(rows: Sequence[PluginRow]) -> None:
    from rich.text import Text

    from kopt.cli.output import plain_table, put

    table = plain_table(*COLUMNS)
    for column in table.columns[:4]:
        column.no_wrap = True
    for row in rows:
        # Text, not markup: a detail may hold square brackets.
        cells = [Text(cell) for cell in row.cells]
        cells[3].stylize(_STYLES.get(row.status, "red"))
        table.add_row(*cells)
    put(table)
