"""``kopt config show``: every setting with its value and its origin."""

from __future__ import annotations

import json

from rich.text import Text

from kopt.cli.output import plain_table, print_json, put
from kopt.config import Settings
from kopt.errors import ExitCode
from kopt.settings import SETTINGS


def show_config(settings: Settings, as_json: bool) -> int:
    """Print the settings on stdout, as a table or as one JSON object, and return the exit code."""
    if as_json:
        print_json({"schema": 1, **_as_data(settings)})
        return ExitCode.IMPROVED
    table = plain_table("SETTING", "VALUE", "ORIGIN")
    for name, entry in _as_data(settings)["settings"].items():
        table.add_row(name, Text(_shown(entry["value"])), Text(str(entry["origin"])))
    put(table)
    return ExitCode.IMPROVED


def _as_data(settings: Settings) -> dict[str, dict[str, dict[str, object]]]:
    """Return ``settings``: setting, or role.name.key, to value and origin."""
    plain = settings.to_json()
    rows: dict[str, object] = {name: plain[name] for name in SETTINGS}
    for plugin, options in sorted(settings.options.items()):
        rows.update({f"{plugin}.{key}": value for key, value in options.items()})
    entries: dict[str, dict[str, object]] = {
        name: {"value": value, "origin": settings.origins.get(name, "default")}
        for name, value in rows.items()
    }
    return {"settings": entries}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)
