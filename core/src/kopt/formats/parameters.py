"""Whether a problem's inputs can be passed to its reference, by the parameters that it declares."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from inspect import Parameter, Signature
from pathlib import Path

from kopt.errors import ProblemError
from kopt.formats.python_source import suggestion
from kopt.model.problem import InputSpec

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def signature_of(function: ast.FunctionDef) -> Signature:
    """Return a function's signature; annotations and defaults are expressions (``ast.expr``)."""
    names = function.args
    positional = [*names.posonlyargs, *names.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(names.defaults))
    defaults += names.defaults
    found = [
        _parameter(
            argument,
            Parameter.POSITIONAL_ONLY
            if argument in names.posonlyargs
            else Parameter.POSITIONAL_OR_KEYWORD,
            default,
        )
        for argument, default in zip(positional, defaults, strict=True)
    ]
    if names.vararg:
        found.append(_parameter(names.vararg, Parameter.VAR_POSITIONAL, None))
    for argument, default in zip(names.kwonlyargs, names.kw_defaults, strict=True):
        found.append(_parameter(argument, Parameter.KEYWORD_ONLY, default))
    if names.kwarg:
        found.append(_parameter(names.kwarg, Parameter.VAR_KEYWORD, None))
    return Signature(found)


def _parameter(argument: ast.arg, kind: object, default: ast.expr | None) -> Parameter:
    return Parameter(
        argument.arg,
        kind,  # type: ignore[arg-type] # inspect keeps the enum's class to itself
        default=Parameter.empty if default is None else default,
        annotation=argument.annotation or Parameter.empty,
    )


def agree(
    function: ast.FunctionDef, specs: Sequence[InputSpec], described: Path, source: Path
) -> tuple[InputSpec, ...]:
    """Return the inputs, keyword-only ones marked as such. Raises ProblemError.

    A parameter without a default must have an input, each input a parameter, and those not passed
    by keyword must stand in the order of the parameters.
    """
    signature = signature_of(function)
    _check_names(
        signature,
        specs,
        f"{described}: [inputs] and {function.name} of {source.name} (line {function.lineno})",
    )
    only = {p.name for p in signature.parameters.values() if p.kind is Parameter.KEYWORD_ONLY}
    marked = tuple(
        spec.model_copy(update={"keyword": True}) if spec.name in only else spec for spec in specs
    )
    _check_call(signature, marked, f"{described}: [inputs], passed to {function.name}")
    return marked


def _check_names(signature: Signature, specs: Sequence[InputSpec], where: str) -> None:
    single = [p for p in signature.parameters.values() if p.kind not in _VARIADIC]
    names = [p.name for p in single]
    given = [spec.name for spec in specs]
    missing = [p.name for p in single if p.default is Parameter.empty and p.name not in given]
    extra = [name for name in given if name not in names]
    if missing:
        unknown = f"; no parameter is called {', '.join(map(repr, extra))}" if extra else ""
        raise ProblemError(
            f"{where} disagree: parameter {', '.join(map(repr, missing))} has no input; add "
            f"[inputs.{missing[0]}]{unknown}"
        )
    if extra and len(single) == len(signature.parameters):
        raise ProblemError(
            f"{where} disagree: no parameter is called {', '.join(map(repr, extra))}"
            f"{suggestion(extra[0], names)}"
        )


def _check_call(signature: Signature, specs: Sequence[InputSpec], where: str) -> None:
    """Bind each input's name as its value and see whether it arrives at its own parameter."""
    positional = [spec.name for spec in specs if not spec.keyword]
    by_keyword = {spec.name: spec.name for spec in specs if spec.keyword}
    try:
        bound = signature.bind(*positional, **by_keyword)
    except TypeError as error:
        raise ProblemError(
            f"{where}: {error}; inputs without keyword = true are passed in the file's order"
        ) from error
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind not in _VARIADIC and value != name:
            order = ", ".join(n for n in signature.parameters if n in {s.name for s in specs})
            raise ProblemError(
                f"{where}: inputs are passed in the file's order, so {value!r} would arrive as "
                f"{name!r}; put them in the order {order}, or set keyword = true"
            )
