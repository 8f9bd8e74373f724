"""Generated Triton lines as C++ over vectors of float32: the same arithmetic, operator by operator."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.device_functions import HELPERS

_FUNCTIONS = {
    "tl.abs": "absolute",
    "tl.ceil": "rounded_up",
    "tl.erf": "error_function",
    "tl.exp2": "power_of_two",
    "tl.floor": "rounded_down",
    "tl.log": "natural_log",
    "tl.log2": "log_to_two",
    "tl.maximum": "larger",
    "tl.minimum": "smaller",
    "tl.sqrt_rn": "square_root",
    "tl.where": "choose",
}
_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=", ast.USub: "-", ast.Invert: "~",
}  # fmt: skip
_NUMBERS = {"inf": "__builtin_inff()", "-inf": "-__builtin_inff()", "nan": '__builtin_nanf("")'}


class InLanes:
    """Translates lines of kernels' bodies, and the functions that they call.

    Every value is a vector of float32, or of what a comparison of such gives. Methods raise
    NotCoveredError where that cannot be.
    """

    def __init__(self, linkage: str = "static inline") -> None:
        """``linkage``: what the definitions of functions begin with."""
        self._linkage = linkage
        self._called: dict[str, str | None] = {}
        """The definition of each function; None while it is being written."""
        self._order: list[str] = []
        self._known: set[str] = set()

    def body(self, lines: Iterable[str]) -> list[str]:
        """Return lines of a body in C++; its variables are its own."""
        self._known = set()
        return [text for line in lines for text in self._statement(ast.parse(line).body[0])]

    def functions(self) -> str:
        """Return the definitions of all functions that were called."""
        return "\n".join(str(self._called[name]) for name in self._order)

    def _statement(self, node: ast.stmt) -> list[str]:
        if isinstance(node, ast.Return) and node.value is not None:
            return [f"return {self._text(node.value)};"]
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise NotCoveredError("a statement that is no assignment")
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        else:
            pairs = [(target, node.value)]
        return [line for name, value in pairs for line in self._assigned(name, value)]

    def _assigned(self, target: ast.expr, value: ast.expr) -> list[str]:
        if not isinstance(target, ast.Name):
            raise NotCoveredError("an assignment to no name")
        first = target.id not in self._known
        self._known.add(target.id)
        return [f"{'auto ' if first else ''}{target.id} = {self._text(value)};"]

    def _text(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return _number(float(node.value))
        if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
            return f"({self._text(node.left)} {_SIGNS[type(node.op)]} {self._text(node.right)})"
        if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
            return f"({_SIGNS[type(node.op)]}{self._text(node.operand)})"
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIGNS:
            sign = _SIGNS[type(node.ops[0])]
            return f"({self._text(node.left)} {sign} {self._text(node.comparators[0])})"
        if isinstance(node, ast.Call) and not node.keywords:
            return self._call(node)
        raise NotCoveredError(f"{ast.unparse(node)} in C++")

    def _call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            if ast.unparse(node.args[0]) != "tl.float32":
                raise NotCoveredError(f"{ast.unparse(node)} in C++")
            return f"as_number({self._text(node.func.value)})"
        name = ast.unparse(node.func)
        if name == "float" and isinstance(node.args[0], ast.Constant):
            return _number(float(node.args[0].value))  # type: ignore[arg-type]
        if name == "tl.full" and ast.unparse(node.args[2]) == "tl.float32":
            return self._text(node.args[1])  # a vector is as long as it is
        given = ", ".join(self._text(each) for each in node.args)
        if name == "tl.rsqrt":
            return f"({_number(1.0)} / square_root({given}))"
        if name in _FUNCTIONS:
            return f"{_FUNCTIONS[name]}({given})"
        if name not in HELPERS:
            raise NotCoveredError(f"{name} in C++")
        self._define(name)
        return f"{name}({given})"

    def _define(self, name: str) -> None:
        if name in self._called:
            return
        self._called[name] = None
        [function] = ast.parse(HELPERS[name]).body
        if not isinstance(function, ast.FunctionDef):
            raise NotCoveredError(f"{name} in C++")
        names = [argument.arg for argument in function.args.args]
        outside, self._known = self._known, {*names}
        lines = self._lines(function.body)
        self._known = outside
        parameters = ", ".join(f"lanes {each}" for each in names)
        body = "\n".join(f"    {line}" for line in lines)
        self._called[name] = f"{self._linkage} lanes {name}({parameters}) {{\n{body}\n}}\n"
        self._order.append(name)  # after those that it calls

    def _lines(self, body: Sequence[ast.stmt]) -> list[str]:
        told = body[1:] if _is_text(body[0]) else body
        return [line for node in told for line in self._statement(node)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _number(value: float) -> str:
    text = _NUMBERS.get(str(value), f"{value!r}f")
    return f"all({text})"
