"""A run's configuration: defaults, kopt.toml, environment, command line; each value has an origin."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from kopt.config_file import ROLES, Given, find_config, read_config, unknown
from kopt.errors import ConfigError
from kopt.model.budget import Budget
from kopt.model.record import Record
from kopt.model.run import RunConfig
from kopt.settings import SETTINGS, DeviceChoice, parse_duration

__all__ = ["Settings", "find_config", "parse_duration", "resolve", "run_config"]


class Settings(Record):
    """What was asked of a run, with where each value comes from."""

    backend: str | None = None
    """None: the best that this machine has."""
    strategies: tuple[str, ...] = ("starters", "autotune")
    search: str = "beam"
    verifiers: tuple[str, ...] = ("verify",)
    profilers: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    llm: str | None = None
    executor: str | None = None
    device: DeviceChoice | None = None
    """None: cuda where there is one."""
    max_time: float | None = 1200.0
    """In seconds; None: no limit."""
    max_trials: int | None = None
    max_tokens: int | None = None
    max_usd: float | None = None
    seed: int = 0
    build_workers: int | None = None
    """None: one per CPU."""
    build_timeout: float = 120.0
    """In seconds."""
    run_timeout: float = 60.0
    """In seconds."""
    runs_dir: Path = Path(".kopt/runs")
    options: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Plugin options: ``role.name`` to options."""
    origins: dict[str, str] = Field(default_factory=dict)
    """Setting, or ``role.name.key``, to where its value comes from."""


def resolve(
    command_line: Mapping[str, object],
    options: Sequence[str] = (),
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings: defaults < file < environment < command line.

    :param command_line: setting name to value; None and empty lists count as not given.
    :param options: ``ROLE.NAME.KEY=VALUE`` of every ``-o``.
    :param config_file: as find_config returns it.
    :param environment: as kopt.env.settings_from_environment returns it.
    Raises ConfigError with the origin, for an unknown name or a value that does not fit.
    """
    values: dict[str, object] = {}
    tables: dict[str, dict[str, object]] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    for given in _layers(command_line, options, config_file, environment or {}):
        origins[".".join(given.keys)] = given.origin
        if len(given.keys) == 1:
            values[given.keys[0]] = given.value
        else:
            role, name, key = given.keys
            tables.setdefault(f"{role}.{name}", {})[key] = _storable(given)
    return Settings.model_validate({**values, "options": tables, "origins": origins})


def _layers(
    command_line: Mapping[str, object],
    options: Sequence[str],
    config_file: Path | None,
    environment: Mapping[str, str],
) -> Iterator[Given]:
    if config_file is not None:
        yield from read_config(config_file)
    for name, text in environment.items():
        variable = f"KOPT_{name.upper()}"
        if name not in SETTINGS:
            known = [f"KOPT_{setting.upper()}" for setting in SETTINGS]
            raise unknown("the environment", variable, known, "variable")
        yield _read(name, text, variable)
    for name, value in command_line.items():
        if name not in SETTINGS:
            raise unknown("the command line", name, SETTINGS, "setting")
        if value is not None and value != [] and value != ():
            yield _read(name, value, SETTINGS[name].flag)
    for text in options:
        yield _option(text)


def _read(name: str, value: object, origin: str) -> Given:
    try:
        return Given((name,), SETTINGS[name].read(value), origin)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _option(text: str) -> Given:
    path, equals, raw = text.partition("=")
    role, _, rest = path.strip().partition(".")
    name, _, key = rest.rpartition(".")
    if not (equals and role and name and key):
        raise ConfigError(
            f"-o {text}: not ROLE.NAME.KEY=VALUE; write it as -o strategy.autotune.batch=8"
        )
    if role not in ROLES:
        raise unknown(f"-o {text}", role, ROLES, "role")
    return Given((role, name, key), _toml_value(raw.strip()), f"-o {text}")


def _toml_value(raw: str) -> object:
    """Return what ``raw`` means in TOML; where it means nothing there, the text itself."""
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return raw
    return parsed["value"] if set(parsed) == {"value"} else raw


def _storable(given: Given) -> object:
    """Return an option's value. Raises ConfigError where a run's folder could not hold it."""
    try:
        json.dumps(given.value, allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{given.origin}: {'.'.join(given.keys)}: {given.value!r} cannot be stored; "
            "use text, finite numbers, true, false, lists or tables"
        ) from None
    return given.value


def run_config(
    settings: Settings, device: DeviceChoice, backend: str, beside: tuple[str, ...] = ()
) -> RunConfig:
    """Return the configuration of a run whose device and backends have been settled."""
    return RunConfig(
        backend=backend,
        beside=beside,
        strategies=settings.strategies,
        search=settings.search,
        verifiers=settings.verifiers,
        profilers=settings.profilers,
        judges=settings.judges,
        llm=settings.llm,
        executor=settings.executor,
        options=settings.options,
        device=device,
        budget=Budget(
            seconds=settings.max_time,
            trials=settings.max_trials,
            tokens=settings.max_tokens,
            usd=settings.max_usd,
        ),
        seed=settings.seed,
        build_workers=settings.build_workers,
        build_seconds=settings.build_timeout,
        run_seconds=settings.run_timeout,
    )
