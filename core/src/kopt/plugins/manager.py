"""How hooks are called: the only file that uses pluggy."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import pluggy

from kopt import hookspecs
from kopt.errors import PluginInterfaceError
from kopt.plugins.catalog import did_you_mean
from kopt.plugins.loader import LoadedPlugin
from kopt.plugins.markers import PROJECT

_SUPPORTED = {"tryfirst", "trylast"}


class Manager:
    """The plugins of one session or process, checked against the specifications."""

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._loaded: dict[int, LoadedPlugin] = {}

    def register(self, plugins: Sequence[tuple[str, LoadedPlugin]]) -> None:
        """Register plugins under their keys, so that calls follow their order.

        Raises PluginInterfaceError for the first whose hooks do not match the specifications.
        """
        for _, plugin in plugins:
            self._check(plugin)
        # pluggy calls the last registered first.
        for key, plugin in reversed(plugins):
            try:
                self._pluggy.register(plugin.instance, key)
                self._pluggy.check_pending()
            except (pluggy.PluginValidationError, ValueError) as error:
                raise _refusal(plugin, " ".join(str(error).split())) from error
            self._loaded[id(plugin.instance)] = plugin

    def implementers(self, hook: str) -> list[LoadedPlugin]:
        """Return the plugins that implement ``hook``, in the order of calls."""
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, hook)
        return [self._loaded[id(impl.plugin)] for impl in reversed(caller.get_hookimpls())]

    def call(self, hook: str, plugin: LoadedPlugin, arguments: Mapping[str, object]) -> object:
        """Call ``hook`` of this plugin alone; return its answer, None where it gave none."""
        others = [p.instance for p in self._loaded.values() if p is not plugin]
        result: object = self._pluggy.subset_hook_caller(hook, others)(**arguments)
        # Without firstresult pluggy answers with a list, here of one element or none.
        if getattr(hookspecs, hook).kopt_spec["firstresult"]:
            return result
        assert isinstance(result, list)
        return result[0] if result else None

    def _check(self, plugin: LoadedPlugin) -> None:
        """Refuse what pluggy would ignore in silence or report without a next step."""
        kind = type(plugin.instance)
        if kind.__eq__ is not object.__eq__ or kind.__hash__ is not object.__hash__:
            raise _refusal(
                plugin,
                f"{kind.__name__} compares by value; write it as a plain class, not as a dataclass "
                "or pydantic model",
            )
        marked = [name for name in dir(plugin.instance) if self._is_hook(plugin, name)]
        if not marked:
            raise _refusal(
                plugin, "it implements no hook; mark its methods with @kopt.hookimpl"
            )  # fmt: skip
        for name in marked:
            problem = _signature_problem(name, getattr(plugin.instance, name))
            if problem:
                raise _refusal(plugin, problem)

    def _is_hook(self, plugin: LoadedPlugin, name: str) -> bool:
        """Whether the attribute is a marked method of a known hook; raises where it is half of it."""
        options = self._pluggy.parse_hookimpl_opts(plugin.instance, name)
        known = _specifications()
        if options is None:
            static = inspect.getattr_static(plugin.instance, name, None)
            if name.startswith(f"{PROJECT}_") and _is_callable(static):
                hint = "" if name in known else did_you_mean(name, known)
                raise _refusal(
                    plugin,
                    f"{name} is not marked with @kopt.hookimpl{hint}; mark it, or give it a name "
                    f"that does not begin with {PROJECT}_",
                )
            return False
        if name not in known:
            hint = did_you_mean(name, known)
            raise _refusal(plugin, f"unknown hook {name!r}{hint}; hooks are: {', '.join(known)}")
        used = sorted(key for key, value in options.items() if value and key not in _SUPPORTED)
        if used:
            raise _refusal(
                plugin,
                f"{name} is marked with {', '.join(used)}; kopt calls each plugin on its own and "
                "knows tryfirst and trylast only",
            )
        return True


def _specifications() -> dict[str, list[str]]:
    """Return every hook's argument names."""
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if hasattr(function, f"{PROJECT}_spec")
    }


def _signature_problem(hook: str, method: object) -> str | None:
    """Say why pluggy could not fill the method's arguments, or None.

    Only positional arguments without a default are filled by every release of pluggy: any other
    would stay empty unnoticed on some.
    """
    assert callable(method)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return f"{hook} is async; hooks are plain methods"
    known = _specifications()[hook]
    allowed = f"{hook} may take: {', '.join(known) or 'nothing'}"
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return f"{hook} takes *{name}, which would stay empty; name its arguments ({allowed})"
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            return f"{hook} takes {name!r} by keyword only; remove the asterisk ({allowed})"
        if parameter.default is not parameter.empty:
            if name in known:
                return f"{hook} gives {name!r} a default and may not get it; remove the default"
        elif name not in known:
            return (
                f"{hook} takes an unknown argument {name!r}{did_you_mean(name, known)}; {allowed}"
            )
    return None


def _is_callable(static: object) -> bool:
    return callable(static) or isinstance(static, (staticmethod, classmethod))


def _refusal(plugin: LoadedPlugin, problem: str) -> PluginInterfaceError:
    return PluginInterfaceError(f"{plugin.info.label}: {problem}")
