"""The plugins that a configuration names, loaded with their options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from kopt.errors import ConfigError
from kopt.hooks import Hooks
from kopt.model.budget import Budget
from kopt.model.run import RunConfig
from kopt.plugins.catalog import installed


def named_plugins(config: RunConfig) -> list[tuple[str, str]]:
    """Return role and name of every plugin that a configuration names."""
    return [
        *[("backend", name) for name in dict.fromkeys((config.reference, config.backend, *config.beside))],
        *[("verifier", name) for name in config.verifiers],
        *[("strategy", name) for name in config.strategies],
        *[("profiler", name) for name in config.profilers],
        *[("judge", name) for name in config.judges],
        *([] if config.search == "instance" else [("search", config.search)]),
        *[(role, name) for role, name in (("llm", config.llm), ("executor", config.executor)) if name],
    ]  # fmt: skip


def load_hooks(
    config: RunConfig,
    named: Sequence[tuple[str, str]],
    instances: Sequence[tuple[str, object]] = (),
) -> Hooks:
    """Load plugins with the options that a configuration has for them.

    Raises PluginError, and ConfigError for options of a plugin that is not among them.
    """
    used = {_table_name(role, name): (role, name) for role, name in named}
    if idle := sorted(set(config.options) - set(used)):
        raise _idle_options(idle[0], sorted(used))
    references = [
        (role, name, config.options.get(_table_name(role, name), {})) for role, name in named
    ]
    return Hooks.load(references, instances)


def refuse_unmetered(hooks: Hooks, budget: Budget) -> None:
    """Raise ConfigError where a run would ask a model that it has not, or at a price nobody knows.

    A plugin whose class says ``needs_llm = True`` cannot work without a language model.
    """
    if not hooks.has("llm"):
        for plugin in hooks.plugins:
            if plugin.needs_llm:
                raise ConfigError(
                    f"{plugin.info.label} needs a language model; name one with --llm, as "
                    "`--llm openai` for an OpenAI-compatible endpoint or `--llm mailbox`"
                )
    elif budget.usd is not None and hooks.kopt_price("code") is None:
        raise ConfigError(
            "--max-usd limits money, and nobody knows what this language model costs: give its "
            "price in the plugin's options, or limit tokens with --max-tokens"
        )


def _table_name(role: str, name: str) -> str:
    return f"{role}.{name.rpartition(':')[2]}"


def _idle_options(name: str, used: list[str]) -> ConfigError:
    close = difflib.get_close_matches(name, used, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigError(
        f"options for {name}, which is not used here; {hint}used are {', '.join(used)}"
    )


def without_idle_options(
    config: RunConfig, origins: Mapping[str, str], named: Sequence[tuple[str, str]]
) -> RunConfig:
    """Drop what a file says about installed plugins that are not used.

    One kopt.toml may serve several backends and search policies; on the command line it would be
    a mistake, and so is a name that is not installed.
    """
    used = {_table_name(role, name) for role, name in named}
    known = {f"{info.role}.{info.name}" for info in installed()}

    def kept(name: str, table: Mapping[str, object]) -> bool:
        given = {origins.get(f"{name}.{key}", "-o").split(" ")[0] for key in table}
        return name in used or name not in known or "-o" in given

    options = {name: table for name, table in config.options.items() if kept(name, table)}
    return config.model_copy(update={"options": options})
