"""The two markers that specifications and plugins carry (pluggy itself is manager.py's business)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

PROJECT = "kopt"


@overload
def hookimpl(function: F) -> F: ...
@overload
def hookimpl(*, tryfirst: bool = False, trylast: bool = False) -> Callable[[F], F]: ...
def hookimpl(function: F | None = None, *, tryfirst: bool = False, trylast: bool = False) -> Any:
    """Mark a method as the implementation of the hook of its name.

    ``tryfirst`` and ``trylast`` move it to the front or the end of the user's order. There are no
    wrappers: kopt calls each plugin on its own, so that one that fails costs no other's answer.
    """
    options = {"tryfirst": tryfirst, "trylast": trylast}
    return _mark(f"{PROJECT}_impl", _IMPL_DEFAULTS, function, options)


@overload
def hookspec(function: F) -> F: ...
@overload
def hookspec(*, firstresult: bool = False) -> Callable[[F], F]: ...
def hookspec(function: F | None = None, *, firstresult: bool = False) -> Any:
    """Mark a function as a hook's specification."""
    return _mark(f"{PROJECT}_spec", _SPEC_DEFAULTS, function, {"firstresult": firstresult})


_IMPL_DEFAULTS: dict[str, Any] = {
    "wrapper": False, "hookwrapper": False, "optionalhook": False, "tryfirst": False,
    "trylast": False, "specname": None,
}  # fmt: skip
_SPEC_DEFAULTS: dict[str, Any] = {
    "firstresult": False, "historic": False, "warn_on_impl": None, "warn_on_impl_args": None,
}  # fmt: skip


def _mark(attribute: str, defaults: dict[str, Any], function: F | None, options: Any) -> Any:
    def mark(target: F) -> F:
        setattr(target, attribute, {**defaults, **options})
        return target

    return mark if function is None else mark(function)
