"""Asks each plugin on its own: one that fails loses no other's answer, and is kept account of."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from kopt.errors import (
    CandidateError,
    CompletionError,
    DeviceError,
    KoptError,
    PluginError,
    ProblemError,
    RunPausedError,
    WorkerError,
)
from kopt.logs import get_logger
from kopt.model.record import Record
from kopt.plugins.loader import LoadedPlugin
from kopt.plugins.manager import Manager

T = TypeVar("T")

FAILURES_TO_RETIRE = 3

_ANSWERS: dict[str, tuple[type[KoptError], ...]] = {
    "kopt_load_problem": (ProblemError,),
    "kopt_submit": (DeviceError, ProblemError),
    "kopt_open_reference": (ProblemError, DeviceError, WorkerError),
    "kopt_measure_device": (DeviceError, WorkerError),
    "kopt_read_profile": (PluginError,),
    "kopt_judge": (RunPausedError,),
    "kopt_propose": (RunPausedError,),
    "kopt_complete": (CompletionError,),
    "kopt_build": (CandidateError, ProblemError, WorkerError),
    "kopt_verify": (CandidateError, ProblemError, WorkerError),
    "kopt_recheck": (CandidateError, ProblemError, WorkerError),
}
"""Errors that are a hook's answer, not its plugin's failure: they pass through."""

_OUT_OF_MEMORY = frozenset({"MemoryError", "OutOfMemoryError"})
"""Failures, by their type's name, that others on the machine or the device may have caused."""

_NEEDED: dict[str, type[KoptError]] = {
    "kopt_load_problem": PluginError,
    "kopt_open_reference": WorkerError,
    "kopt_build": WorkerError,
    "kopt_verify": WorkerError,
    "kopt_recheck": WorkerError,
}
"""Hooks whose missing answer must not be taken for a "no": what is raised where a plugin failed."""

_log = get_logger(__name__)


class PluginFailure(Record):
    """A hook that raised, or answered with the wrong type."""

    role: str
    plugin: str
    source: str
    """Distribution and version, or the class of an instance."""
    hook: str
    error: str
    traceback: str
    retired: bool
    """Whether it was the one too many."""


class IsolatedCalls:
    """The guarded way to a set of plugins.

    A plugin that raises is logged, kept in ``failures`` and passed over. A hook of it that fails
    three times in a row retires the plugin for the rest of the run. Where an answer is needed
    (build, verify, open_reference, load_problem) and a plugin failed or is retired, ``ask_all``
    raises and names it. An interrupt is never caught.
    """

    def __init__(self, plugins: Sequence[LoadedPlugin]) -> None:
        """Bind plugins in the user's order. Raises PluginInterfaceError."""
        self._keys = _keys(plugins)
        self._manager = Manager()
        self._manager.register([(self._keys[plugin], plugin) for plugin in plugins])
        self._in_a_row: dict[tuple[LoadedPlugin, str], int] = {}
        self.plugins = tuple(plugins)
        self.failures: list[PluginFailure] = []
        self.on_failure: Callable[[PluginFailure], None] | None = None
        """Called after each failure, as to write it to the journal."""
        self.retired: set[str] = set()
        """Keys (``role.name``) of plugins that are not asked again."""

    def sources(self) -> dict[str, str]:
        """Return each plugin's key, ``role.name``, with its distribution and version."""
        return {key: plugin.info.source for plugin, key in self._keys.items()}

    def ask_all(
        self,
        hook: str,
        convert: Callable[[Any], T],
        arguments: Mapping[str, object],
        only_first: bool = False,
        only: Callable[[LoadedPlugin], bool] | None = None,
    ) -> list[tuple[LoadedPlugin, T]]:
        """Ask in the order of calls; leave out None, failures and retired plugins.

        ``only``: which plugins are asked.
        """
        answers: list[tuple[LoadedPlugin, T]] = []
        lost: list[str] = []
        cause: BaseException | None = None
        for plugin in filter(only, self._manager.implementers(hook)):
            if self._keys[plugin] in self.retired:
                lost.append(f"{plugin.info.label} is retired after {FAILURES_TO_RETIRE} failures")
                continue
            try:
                answer = self._ask(hook, plugin, convert, arguments)
            except _Failed as failed:
                lost.append(f"{plugin.info.label} failed in {hook}: {_words(failed.error)}")
                cause = failed.error
                continue
            if answer is not None:
                answers.append((plugin, answer))
                if only_first:
                    return answers
        if lost and hook in _NEEDED:
            _raise_lost(hook, lost, cause)
        return answers

    def _ask(
        self,
        hook: str,
        plugin: LoadedPlugin,
        convert: Callable[[Any], T],
        arguments: Mapping[str, object],
    ) -> T | None:
        """Ask one plugin; its iterable is consumed here, where a failure is caught."""
        try:
            raw = self._manager.call(hook, plugin, arguments)
            answer = None if raw is None else convert(raw)
        except _ANSWERS.get(hook, ()):
            self._in_a_row.pop((plugin, hook), None)
            raise
        except (Exception, SystemExit) as error:
            self._record(hook, plugin, error)
            raise _Failed(error) from error
        self._in_a_row.pop((plugin, hook), None)
        return answer

    def _record(self, hook: str, plugin: LoadedPlugin, error: BaseException) -> None:
        info = plugin.info
        if type(error).__name__ not in _OUT_OF_MEMORY:
            self._in_a_row[plugin, hook] = self._in_a_row.get((plugin, hook), 0) + 1
        retired = self._in_a_row.get((plugin, hook), 0) >= FAILURES_TO_RETIRE
        failure = PluginFailure(
            role=info.role, plugin=info.name, source=info.source, hook=hook, error=_words(error),
            traceback="".join(traceback.format_exception(error)), retired=retired,
        )  # fmt: skip
        self.failures.append(failure)
        where = {"role": info.role, "plugin": info.name, "version": info.source, "hook": hook}
        _log.warning("plugin_failed", **where, error=failure.error)
        if retired:
            self.retired.add(self._keys[plugin])
            _log.error("plugin_retired", **where, failures=FAILURES_TO_RETIRE)
        if self.on_failure:
            self.on_failure(failure)


class _Failed(Exception):
    """Carries a plugin's exception from the guarded call to the loop over plugins."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _raise_lost(hook: str, lost: Sequence[str], cause: BaseException | None) -> NoReturn:
    raise _NEEDED[hook](
        f"no trustworthy answer to {hook}: {'; '.join(lost)}; report it to the plugin's authors or "
        "run without the plugin"
    ) from cause


def _keys(plugins: Sequence[LoadedPlugin]) -> dict[LoadedPlugin, str]:
    """Return ``role.name`` for each; in full or numbered where the short one is taken."""
    keys: dict[LoadedPlugin, str] = {}
    for plugin in plugins:
        role, name, reference = plugin.info.role, plugin.info.name, plugin.info.reference
        numbered = (f"{role}.{name}-{number}" for number in range(2, len(plugins) + 2))
        free = (f"{role}.{name}", f"{role}.{reference}", *numbered)
        keys[plugin] = next(key for key in free if key not in keys.values())
    return keys


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
