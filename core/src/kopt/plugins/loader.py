"""From a name to a plugin's instance: the only file that uses stevedore."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from stevedore.named import NamedExtensionManager

from kopt.errors import (
    PluginError,
    PluginInterfaceError,
    PluginLoadError,
    PluginOptionsError,
)
from kopt.model.record import Options
from kopt.plugins.catalog import PluginInfo, check_role, did_you_mean, find, installed


class PluginRef(NamedTuple):
    """A plugin to load, as it travels to a worker process: pickled, so names and plain data only."""

    role: str
    reference: str
    """``name`` or ``distribution:name``."""
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPlugin:
    """A plugin's instance, where it comes from and, if another process can load it too, how."""

    instance: object
    info: PluginInfo
    ref: PluginRef | None
    """None for an instance that a caller passed and no name leads to."""

    @property
    def needs_llm(self) -> bool:
        """Whether its class says that it cannot work without a language model."""
        return bool(getattr(self.instance, "needs_llm", False))

    @property
    def keeps_requests(self) -> bool:
        """Whether what it was asked outlives kopt's process, and is paid for as the answer is read."""
        return bool(getattr(self.instance, "keeps_requests", False))


def load(
    role: str,
    reference: str,
    options: Mapping[str, object],
    among: Sequence[PluginInfo] | None = None,
) -> LoadedPlugin:
    """Find, import, configure and make a plugin.

    ``among`` is an earlier answer of ``catalog.installed``. Raises the errors of ``catalog.find``,
    then PluginLoadError, PluginInterfaceError (its entry point is no plugin class) or
    PluginOptionsError.
    """
    info = find(role, reference, among)
    plugin_class = _import(info)
    instance = _make(info, plugin_class, _validated(info, plugin_class, options))
    return LoadedPlugin(instance, info, PluginRef(role, info.reference, dict(options)))


def adopt(role: str, instance: object, among: Sequence[PluginInfo] | None = None) -> LoadedPlugin:
    """Take an instance that a caller made, as in ``strategies=[Unroll(Unroll.Options())]``.

    Where its class is an installed entry point of ``role`` it gets that name and version and,
    if it keeps its options as ``self.options``, a reference for worker processes.
    Raises PluginInterfaceError for a class or module in place of an instance.
    """
    check_role(role)
    if inspect.isclass(instance) or inspect.ismodule(instance):
        name = instance.__name__
        raise PluginInterfaceError(
            f"{role}: {name} is a {'class' if inspect.isclass(instance) else 'module'}, not a "
            f"plugin; pass an instance, as {name}({name}.Options())"
        )
    plugin_class = type(instance)
    target = f"{plugin_class.__module__}:{plugin_class.__qualname__}"
    for info in installed(role) if among is None else among:
        if info.role == role and _leads_to(info.target.replace(" ", ""), plugin_class):
            return LoadedPlugin(instance, info, _ref_of(info, instance))
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", plugin_class.__name__).lower()
    return LoadedPlugin(instance, PluginInfo(role, name, "", "", target), None)


def _leads_to(target: str, plugin_class: type) -> bool:
    """Whether an entry point means this class: by its own module, or by one that re-exports it.

    Nothing is imported: where the class is, the packages above it are.
    """
    module, _, path = target.partition(":")
    if (module, path) == (plugin_class.__module__, plugin_class.__qualname__):
        return True
    found: object = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is plugin_class


class _Chosen(NamedExtensionManager[Any]):
    """Loads the one entry point that the catalogue chose.

    stevedore's own listing caches: it loses the distribution, misses what changed within 128 s and
    lets one of two plugins of the same name win.
    """

    def __init__(self, entry_point: metadata.EntryPoint) -> None:
        self._chosen = entry_point
        super().__init__(
            entry_point.group,
            [entry_point.name],
            on_load_failure_callback=_raise,
            on_missing_entrypoints_callback=None,
        )

    def list_entry_points(self) -> list[metadata.EntryPoint]:
        """Return the chosen entry point."""
        return [self._chosen]


def _raise(manager: object, entry_point: metadata.EntryPoint, error: BaseException) -> None:
    raise error


def _import(info: PluginInfo) -> type:
    if info.entry_point is None:
        raise PluginLoadError(f"{info.label} is an instance; it has no entry point to import")
    try:
        plugin: object = _Chosen(info.entry_point)[info.name].plugin
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a plugin's import must not end kopt
        raise PluginLoadError(
            f"{info.label} failed to import: {_words(error)}; repair or reinstall "
            f"{info.distribution}, or do not name it"
        ) from error
    if not inspect.isclass(plugin):
        raise PluginInterfaceError(
            f"{info.label}: its entry point {info.target!r} is {_kind(plugin)}, not a class; the "
            "entry point has to name the plugin's class"
        )
    return plugin


def _validated(
    info: PluginInfo, plugin_class: type, options: Mapping[str, object]
) -> BaseModel | None:
    """Return the plugin's options, or None where its class declares none."""
    schema = getattr(plugin_class, "Options", None)
    if schema is None:
        if options:
            given = ", ".join(map(repr, options))
            raise PluginOptionsError(f"{info.label} takes no options (given: {given}); remove them")
        return None
    if not (inspect.isclass(schema) and issubclass(schema, BaseModel)):
        raise PluginInterfaceError(
            f"{info.label}: {plugin_class.__name__}.Options is no options class; write it as "
            "class Options(kopt.Options)"
        )
    known = _keys(schema)
    # Refused here too, so that an Options made of another base class cannot let a typo pass.
    problems = [f"{key}: unknown option{did_you_mean(key, known)}" for key in set(options) - known]
    validated: BaseModel | None = None
    try:
        validated = schema.model_validate({k: v for k, v in options.items() if k in known})
    except ValidationError as error:
        problems += _problems(error)
    except Exception as error:
        raise PluginOptionsError(f"{info.label}: checking its options raised {_words(error)}; "
                                 "this is a fault of the plugin, not of the options") from error  # fmt: skip
    if problems:
        accepted = ", ".join(sorted(known)) or "none"
        raise PluginOptionsError(f"{info.label}: {'; '.join(sorted(problems))}; options are: {accepted}")  # fmt: skip
    return validated


def _keys(schema: type[BaseModel]) -> set[str]:
    """Return every key by which an option can be given."""
    aliases = {f.alias for f in schema.model_fields.values() if f.alias is not None}
    return set(schema.model_fields) | aliases


def _problems(error: ValidationError) -> list[str]:
    """Put pydantic's findings into words, without the values: one of them may be a secret."""
    findings = error.errors(include_input=False, include_url=False, include_context=False)
    return [f"{'.'.join(map(str, f['loc'])) or 'options'}: {f['msg']}" for f in findings]


def _make(info: PluginInfo, plugin_class: type, options: BaseModel | None) -> object:
    """Construct ``Plugin(options)``, or ``Plugin()`` where it has neither Options nor a parameter."""
    arguments: tuple[object, ...] = (options,)
    if options is None:
        arguments = (Options(),) if _needs_argument(plugin_class) else ()
    try:
        inspect.signature(plugin_class).bind(*arguments)
    except TypeError as error:
        raise PluginInterfaceError(
            f"{info.label}: {plugin_class.__name__} cannot be made as {plugin_class.__name__}"
            f"({'options' if arguments else ''}): {error}; its __init__ takes the options and no more"
        ) from error
    try:
        return plugin_class(*arguments)
    except (PluginError, KeyboardInterrupt):
        raise
    except BaseException as error:  # as at import: SystemExit must not end kopt
        raise PluginLoadError(
            f"{info.label} could not be made: {_words(error)}; check its options and its documentation"
        ) from error


def _needs_argument(plugin_class: type) -> bool:
    parameters: Iterable[inspect.Parameter] = inspect.signature(plugin_class).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def _ref_of(info: PluginInfo, instance: object) -> PluginRef | None:
    """Return how another process makes the same plugin, where that is known."""
    options = getattr(instance, "options", None)
    if isinstance(options, BaseModel):
        return PluginRef(info.role, info.reference, options.model_dump(mode="json"))
    if getattr(type(instance), "Options", None) is None:
        return PluginRef(info.role, info.reference, {})
    return None


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _kind(thing: object) -> str:
    return f"a {type(thing).__name__}"
