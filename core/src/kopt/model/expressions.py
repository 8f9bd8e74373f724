"""Integer expressions over names and shapes, as in ``x.shape[0] // ROWS`` (no code is run)."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from kopt.errors import ExpressionError

_BINARY: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Div: operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_CALLS: dict[str, Any] = {
    "min": min, "max": max, "cdiv": lambda a, b: -(-a // b),
    "next_pow2": lambda n: 1 << max(0, int(n) - 1).bit_length(), "prod": lambda s: _prod(s),
}  # fmt: skip
_ATTRIBUTES = frozenset({"shape", "ndim", "numel", "stride", "itemsize"})


def _prod(values: Any) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression; ``names`` maps to numbers, tuples or objects with a ``shape``.

    Allowed: numbers, names, ``+ - * // / %``, comparisons, ``and or``, indexing and slicing,
    ``min max cdiv next_pow2 prod`` and the attributes ``shape ndim numel stride itemsize``. Raises ExpressionError.
    """
    try:
        tree = ast.parse(text, mode="eval")
        return _value(tree.body, names)
    except ExpressionError as error:
        raise ExpressionError(f"{text!r}: {error}") from error
    except (
        SyntaxError, ArithmeticError, LookupError, AttributeError, TypeError, ValueError,
        RecursionError, MemoryError,
    ) as error:  # fmt: skip
        raise ExpressionError(f"{text!r}: {error}") from error


def unmet(conditions: Iterable[str], names: Mapping[str, Any]) -> str | None:
    """Return the first condition that does not hold; None: all do. Raises ExpressionError."""
    return next((each for each in conditions if not evaluate(each, names)), None)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return node.value
        case ast.Name():
            if node.id not in names:
                known = ", ".join(sorted(names)) or "none"
                raise ExpressionError(f"no name {node.id!r} (known: {known})")
            return names[node.id]
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](_value(node.left, names), _value(node.right, names))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, names)
        case ast.Attribute() if node.attr in _ATTRIBUTES:
            return getattr(_value(node.value, names), node.attr)
        case ast.Subscript(slice=ast.Slice(lower=low, upper=high, step=None)):
            start = None if low is None else _value(low, names)
            stop = None if high is None else _value(high, names)
            return _value(node.value, names)[start:stop]
        case ast.Subscript():
            return _value(node.value, names)[_value(node.slice, names)]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(argument, names) for argument in node.args))
    return _truth(node, names)


def _truth(node: ast.expr, names: Mapping[str, Any]) -> bool:
    match node:
        case ast.Compare() if all(type(each) in _COMPARISONS for each in node.ops):
            values = [_value(each, names) for each in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(_COMPARISONS[type(each)](left, right) for each, left, right in pairs)
        case ast.BoolOp():
            joined = all if isinstance(node.op, ast.And) else any
            return joined(_value(each, names) for each in node.values)
    raise ExpressionError(f"{ast.unparse(node)!r} is not allowed here{_instead(node, names)}")


def _instead(node: ast.expr, names: Mapping[str, Any]) -> str:
    """Return what to write instead, for the end of a sentence; empty: nobody knows."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _ATTRIBUTES:
            assert isinstance(node.func, ast.Attribute)
            return f"; write {ast.unparse(node.func)!r}, without brackets"
        case ast.Attribute():
            joined = ast.unparse(node).replace(".", "_")
            if joined in names:  # a parameter of a module
                return f"; write {joined!r}"
            return f"; of a tensor there are {', '.join(sorted(_ATTRIBUTES))}"
        case ast.Call():
            return f"; functions are {', '.join(sorted(_CALLS))}"
    return ""
