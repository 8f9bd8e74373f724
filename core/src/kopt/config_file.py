"""kopt.toml: settings and plugin options, each with the line that it stands on."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kopt.errors import ConfigError
from kopt.settings import SETTINGS

ROLES = (
    "profiler", "judge", "strategy", "backend", "verifier", "search", "llm", "executor", "format",
    "exporter",
)  # fmt: skip
FILE_NAME = "kopt.toml"


@dataclass(frozen=True)
class Given:
    """A value as a layer of the configuration gives it."""

    keys: tuple[str, ...]
    """``(setting,)``, or ``(role, name, key)`` for a plugin's option."""
    value: object
    origin: str


def find_config(given: Path | None = None, problem: Path | None = None) -> Path | None:
    """Return the configuration file: ``given``, else ./kopt.toml, else the problem folder's.

    Raises ConfigError where ``given`` does not exist.
    """
    if given is not None:
        if not given.is_file():
            raise ConfigError(f"{given}: no such configuration file; check the path given with -c")
        return given
    folder = problem.parent if problem is not None and problem.is_file() else problem
    places = [Path(FILE_NAME)] + ([folder / FILE_NAME] if folder else [])
    return next((place for place in places if place.is_file()), None)


def read_config(path: Path) -> Iterator[Given]:
    """Yield every value of a configuration file, settings read.

    Raises ConfigError with file and line for whatever is unknown or does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}{_collision_hint(error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    file = _File(path, text)
    run = content.pop("run", {})
    if not isinstance(run, dict):
        raise ConfigError(f"{file.at('run')}: 'run' is a table of settings; write [run]")
    for name, value in run.items():
        if name in content and not isinstance(content[name], dict):
            raise ConfigError(f"{file.at('run', name)}: {name!r} is set twice, in [run] and above")
        yield file.setting(("run", name), value)
    for name, value in content.items():
        if isinstance(value, dict):
            yield from file.plugins(name, cast("dict[str, object]", value))
        else:
            yield file.setting((name,), value)


def unknown(where: str, name: str, known: Iterable[str], what: str) -> ConfigError:
    """Return the error for a name that is not among ``known``, with the closest one."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
    return ConfigError(f"{where}: unknown {what} {name!r}; {hint}")


def _collision_hint(error: tomllib.TOMLDecodeError) -> str:
    if not re.search("overwrite|declare|mutate|namespace", str(error)):
        return ""
    return "; where a setting as search = ... stands beside a table [search.NAME], put it in [run]"


@dataclass(frozen=True)
class _File:
    """A configuration file, for finding the lines of its keys."""

    path: Path
    text: str

    def at(self, *keys: str) -> str:
        """Return ``file:line`` of a key, or the file where the line cannot be told."""
        line = _line_of(self.text, keys)
        return f"{self.path}:{line}" if line else str(self.path)

    def setting(self, keys: tuple[str, ...], value: object) -> Given:
        """Return a setting's value. Raises ConfigError for an unknown name or a wrong value."""
        name, where = keys[-1], self.at(*keys)
        if name not in SETTINGS:
            raise unknown(where, name, SETTINGS, "setting")
        try:
            return Given((name,), SETTINGS[name].read_typed(value), where)
        except ValueError as error:
            raise ConfigError(f"{where}: {name}: {error}") from error

    def plugins(self, role: str, tables: dict[str, object]) -> Iterator[Given]:
        """Yield the options in ``[role.name]`` tables. Raises ConfigError for an unknown role."""
        if role not in ROLES:
            raise unknown(self.at(role), role, (*ROLES, "run"), "table")
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ConfigError(
                    f"{self.at(role, name)}: {role}.{name} is no table of options; "
                    f"write [{role}.NAME] and {name} = ... below it"
                )
            for key, value in table.items():
                yield Given((role, name, key), value, self.at(role, name, key))


_QUOTED = r"\"[^\"]*\"|'[^']*'"
_PART = re.compile(rf"[\w-]+|{_QUOTED}")
_KEYS = rf"(?:[\w-]+|{_QUOTED})(?:\s*\.\s*(?:[\w-]+|{_QUOTED}))*"
_TABLE = re.compile(rf"\s*\[\s*(?P<keys>{_KEYS})\s*\]\s*(#.*)?$")
_ASSIGNMENT = re.compile(rf"\s*(?P<keys>{_KEYS})\s*=")


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Return the line, from 1, that first sets or opens ``keys``: tomllib does not tell it."""
    table: tuple[str, ...] = ()
    for number, line in _code_lines(text):
        if match := _TABLE.match(line):
            table = _parts(match["keys"])
            if table[: len(keys)] == keys:
                return number
        elif match := _ASSIGNMENT.match(line):
            found = (*table, *_parts(match["keys"]))
            # The second case is an inline table: autotune = {batch = 8}
            if found[: len(keys)] == keys or keys[: len(found)] == found:
                return number
    return None


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that do not begin inside a multi-line string."""
    quotes: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if quotes is None:
            yield number, line
        for mark in ('"""', "'''"):
            if quotes in {None, mark} and line.count(mark) % 2:
                quotes = None if quotes else mark


def _parts(keys: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(keys))
