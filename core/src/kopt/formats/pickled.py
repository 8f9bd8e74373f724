"""Problems from a live function and example arguments, as ``kopt.optimize(fn, inputs)`` takes them.

Unlike the formats this has no file to read: cloudpickle carries the function to the judge process,
also one of ``__main__``, a notebook, a lambda or a closure. torch is not imported; tensors are
known by their ``shape`` and ``dtype``.
"""

from __future__ import annotations

import base64
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

from pydantic import ValidationError

from kopt.errors import ProblemError
from kopt.formats.by_value import dumps
from kopt.formats.python_source import suggestion
from kopt.formats.samples import spec_of
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Tolerance

Inputs = Mapping[str, Any] | Sequence[Any]


def problem_from_function(
    fn: Callable[..., Any],
    inputs: Inputs,
    *,
    name: str | None = None,
    tolerance: Tolerance | None = None,
    mutates: Sequence[str] = (),
) -> Problem:
    """Return the problem of making ``fn`` faster for arguments like ``inputs``.

    :param inputs: example arguments in order, or by name: tensors, scalars, or an InputSpec where
        the values drawn should be others than the sample suggests (floats: normal; integers:
        between the sample's least and largest; bools: as often true as in the sample).
    :param mutates: names of the tensors that ``fn`` changes in place.
    Raises ProblemError. The samples are not kept: arguments are drawn anew by specification.
    """
    if not callable(fn):
        raise ProblemError(f"{fn!r} is not callable; pass a function, or the path of a problem")
    label = name or _name_of(fn)
    specs = _specs(fn, inputs, label)
    for mutated in mutates:
        tensors = [spec.name for spec in specs if spec.shape is not None]
        if mutated not in tensors:
            raise ProblemError(
                f"{label}: mutates names {mutated!r}, which is no tensor{suggestion(mutated, tensors)}"
            )
    reference = ReferenceSource(
        kind="pickled", source=base64.b64encode(dumps(fn, label)).decode("ascii"),
        entry=_name_of(fn), filename=_file_of(fn),
    )  # fmt: skip
    try:
        return Problem(
            name=label, format="function", reference=reference, inputs=specs,
            tolerance=tolerance or Tolerance(), mutates=tuple(mutates),
        )  # fmt: skip
    except ValidationError as error:
        reasons = "; ".join(str(e["msg"]).removeprefix("Value error, ") for e in error.errors())
        raise ProblemError(f"{label}: {reasons}") from error


def _specs(fn: Callable[..., Any], inputs: Inputs, label: str) -> tuple[InputSpec, ...]:
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Mapping | Sequence):
        raise ProblemError(
            f"{label}: inputs is a {type(inputs).__name__}; pass a list of example arguments, or a "
            f"mapping of their names"
        )
    if not inputs:
        raise ProblemError(f"{label}: inputs is empty; pass one example argument per parameter")
    signature = _signature(fn)
    if isinstance(inputs, Mapping):
        named = _by_name(signature, inputs, label)
    else:
        named = [(name, value, False) for name, value in _by_position(signature, inputs, label)]
    return tuple(spec_of(name, value, keyword, label) for name, value, keyword in named)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of ``fn``, a module's from its ``forward``; None for some built-ins."""
    target = getattr(fn, "forward", fn) if not inspect.isroutine(fn) else fn
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _by_position(
    signature: inspect.Signature | None, inputs: Sequence[Any], label: str
) -> list[tuple[str, Any]]:
    if signature is None:
        return [(f"arg{number}", value) for number, value in enumerate(inputs)]
    try:
        signature.bind(*inputs)
    except TypeError as error:
        raise ProblemError(f"{label}{signature} does not take these inputs: {error}") from error
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{n}" for n in range(len(inputs) - len(names))]
        elif parameter.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}:
            names.append(parameter.name)
    return list(zip(names, inputs, strict=False))


def _by_name(
    signature: inspect.Signature | None, inputs: Mapping[str, Any], label: str
) -> list[tuple[str, Any, bool]]:
    """Return names, values and whether each is passed by keyword, in the signature's order."""
    if signature is None:
        return [(name, value, True) for name, value in inputs.items()]
    parameters = signature.parameters
    positional = [p.name for p in parameters.values() if p.kind is Parameter.POSITIONAL_ONLY]
    before = []
    for parameter in parameters.values():
        ordinary = parameter.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
        if not ordinary or parameter.name not in inputs:
            break  # those after a gap are passed by keyword
        before.append(parameter.name)
    later = {name: value for name, value in inputs.items() if name not in before}
    try:
        signature.bind(*(inputs[name] for name in before), **later)
    except TypeError as error:
        unknown = [name for name in later if name not in parameters]
        hint = suggestion(unknown[0], parameters) if unknown else ""
        raise ProblemError(
            f"{label}{signature} does not take these inputs: {error}{hint}"
        ) from error
    rest = [name for name in parameters if name in later and name not in positional]
    rest += [name for name in later if name not in rest]
    return [(name, inputs[name], name not in before) for name in [*before, *rest]]


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    given = getattr(fn, "__name__", None) or type(fn).__name__
    return re.sub(r"\W+", "_", given).strip("_") or "function"


def _file_of(fn: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return re.split(r"[\\/]", code.co_filename)[-1] if code is not None else "function"
