"""Pickling a function so that a process without its script or notebook can run it."""

from __future__ import annotations

import functools
import inspect
import itertools
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from kopt.errors import ProblemError

_MEMBERS = 1000
"""Members of a container that are looked at: code does not hide among a million numbers."""


def dumps(fn: Callable[..., Any], label: str) -> bytes:
    """Return a cloudpickle of ``fn``; its script and the scripts that it uses go along by value.

    Raises ProblemError that names what cannot be pickled.
    """
    import cloudpickle

    with _carried(_own_modules(fn)):
        try:
            data: bytes = cloudpickle.dumps(fn)
        except Exception as error:
            culprit = _culprit(fn)
            raise ProblemError(
                f"{label} cannot be carried to the judge process: {culprit}{_words(error)}; make it "
                f"inside the function or pass it as an input, or write the function into a file "
                f"and use 'kopt init FILE:FUNCTION'"
            ) from error
    return data


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _culprit(fn: Callable[..., Any]) -> str:
    """Return the first name in the function's reach that cannot be pickled by itself, or nothing."""
    import cloudpickle

    for name, value in _reach(fn):
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 # any failure to pickle is the answer
            return f"{name!r} (a {type(value).__name__}) does not pickle; "
    return ""


@contextmanager
def _carried(modules: list[ModuleType]) -> Iterator[None]:
    """Let cloudpickle take ``modules`` by value, and forget that afterwards."""
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in known]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules(fn: Callable[..., Any]) -> list[ModuleType]:
    """Return the modules in the function's reach that another process could not import."""
    found: dict[str, ModuleType] = {}
    queue: list[Any] = [fn]
    seen: dict[int, Any] = {}  # holds what it has seen, so that no id is used twice
    while queue:
        thing = queue.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, dict | list | tuple | set | frozenset):
            members = thing.values() if isinstance(thing, dict) else thing
            queue += itertools.islice(members, _MEMBERS)
            continue
        module = _module_of(thing)
        if module is not None and _is_script(module):
            found[module.__name__] = module
            queue += [value for _, value in _reach(thing)]
    # __main__ goes by value in any case.
    return [module for name, module in found.items() if name != "__main__"]


def _module_of(thing: Any) -> ModuleType | None:
    if isinstance(thing, ModuleType):
        return thing
    if isinstance(thing, functools.partial):
        return _module_of(thing.func)
    name = getattr(thing, "__module__", None) or type(thing).__module__
    return sys.modules.get(name) if isinstance(name, str) else None


def _is_script(module: ModuleType) -> bool:
    """Whether a module is a plain file of the user's: not built in, not installed, not kopt's."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        return True
    if file is None or module.__name__.split(".")[0] in {"kopt", *sys.stdlib_module_names}:
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Return the folders from which every interpreter imports: installed and editable packages."""
    packages = {*site.getsitepackages(), site.getusersitepackages()}
    folders = packages | {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib")}
    for links in (file for folder in packages for file in Path(folder).glob("*.pth")):
        lines = links.read_text(encoding="utf-8", errors="replace").splitlines()
        folders |= {line for line in lines if Path(line).is_absolute() and Path(line).is_dir()}
    return tuple(Path(folder).resolve() for folder in folders)


def _reach(thing: Any) -> list[tuple[str, Any]]:
    """Return the names and values that a function, class, module or object refers to."""
    if isinstance(thing, functools.partial):
        bound = [(f"argument {number}", value) for number, value in enumerate(thing.args)]
        return [("func", thing.func), *bound, *thing.keywords.items()]
    if isinstance(thing, MethodType):
        return [("self", thing.__self__), *_reach(thing.__func__)]
    if isinstance(thing, FunctionType):
        return _function_reach(thing)
    if isinstance(thing, ModuleType):
        return list(vars(thing).items())
    if not inspect.isclass(thing):
        return [*getattr(thing, "__dict__", {}).items(), ("class", type(thing))]
    methods = [member for member in vars(thing).values() if isinstance(member, FunctionType)]
    bases = [("base", base) for base in thing.__bases__]
    return bases + [pair for method in methods for pair in _function_reach(method)]


def _function_reach(function: FunctionType) -> list[tuple[str, Any]]:
    names = _names(function.__code__)
    found = [(n, function.__globals__[n]) for n in names if n in function.__globals__]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            continue  # a cell that is not filled yet
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        found.append(("__wrapped__", wrapped))
    return found


def _names(code: CodeType) -> list[str]:
    inner = [
        name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)
    ]
    return [*code.co_names, *inner]
