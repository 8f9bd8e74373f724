"""Binding a C function's arguments by name: pointers to tensors, integers and floats by expression."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from kopt.errors import CandidateError, ExpressionError
from kopt.model.expressions import evaluate, unmet
from kopt.model.verification import Status
from kopt.worker.binding import BoundTensor


def c_arguments(expressions: list[str], names: dict[str, Any], knobs: dict[str, Any]) -> list[Any]:
    """Return the ctypes arguments: a pointer per tensor, int64 per integer, double per float.

    Raises CandidateError: PARSE_ERROR where an expression is wrong, UNSUPPORTED where a tensor is
    not contiguous and no expression passes a stride of it.
    """
    for text in expressions:
        tensor = names.get(text.strip())
        if not isinstance(tensor, BoundTensor) or tensor.contiguous:
            continue
        if not any(f"{text.strip()}.stride" in other for other in expressions):
            raise CandidateError(
                Status.UNSUPPORTED,
                f"{text.strip()} is not contiguous, and the kernel gets a bare pointer to it; pass "
                f"its strides ({text.strip()}.stride[0], ...) or a contiguous tensor",
            )
    return [_c_value(text, {**knobs, **names}) for text in expressions]


def _c_value(text: str, names: dict[str, Any]) -> Any:
    try:
        value = evaluate(text, names)
    except ExpressionError as error:
        raise CandidateError(
            Status.PARSE_ERROR, f"arguments in the kopt header: {error}"
        ) from error
    match value:
        case BoundTensor():
            return ctypes.c_void_p(value.address)
        case bool() | int():
            return ctypes.c_int64(int(value))
        case float():
            return ctypes.c_double(value)
    raise CandidateError(
        Status.PARSE_ERROR,
        f"arguments in the kopt header: {text!r} is {value!r}, neither tensor, integer nor float",
    )


def check_count(source: str, entry: str, expressions: list[str]) -> None:
    """Raise CandidateError (PARSE_ERROR) where a function takes more or fewer than it is passed.

    A foreign call would pass whatever lies there. Where the source does not tell, nothing is said.
    """
    parameters = parameters_of(source, entry)
    if parameters is None or len(parameters) == len(expressions):
        return
    raise CandidateError(
        Status.PARSE_ERROR,
        f"{entry} takes {len(parameters)} parameters ({', '.join(parameters) or 'none'}), and is "
        f"passed {len(expressions)}: {', '.join(expressions) or 'none'}; write what they are into "
        "the kopt header: arguments = [...]",
    )


def parameters_of(source: str, entry: str) -> list[str] | None:
    """Return the parameters in the one definition of an ``extern "C"`` function; None: not found.

    So it is where a macro, a directive or a block of declarations stands in between, where a parameter
    is a single word (a macro may stand for several), or where there are several definitions.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    found = list(re.finditer(rf'extern\s+"C"\s+[\w\s*]*?\b{re.escape(entry)}\s*\(', code))
    if len(found) != 1:
        return None
    depth, start, parts = 1, found[0].end(), []
    for at in range(start, len(code)):
        depth += (code[at] in "([{<") - (code[at] in ")]}>")
        if depth == 0 or (depth == 1 and code[at] == ","):
            parts.append(" ".join(code[start:at].split()))
            start = at + 1
        if depth == 0:
            break
    if depth:
        return None
    if parts in ([""], ["void"]):
        return []
    unsure = any(re.fullmatch(r"\w*", part) or "#" in part for part in parts)
    return None if unsure else parts


def check_required(conditions: list[str], names: dict[str, Any]) -> None:
    """Raise CandidateError (UNSUPPORTED) where a condition of the header does not hold."""
    try:
        condition = unmet(conditions, names)
    except ExpressionError as error:
        raise CandidateError(Status.PARSE_ERROR, f"requires in the kopt header: {error}") from error
    if condition is not None:
        raise CandidateError(
            Status.UNSUPPORTED,
            f"the kernel requires {condition}, which does not hold for this call",
        )
