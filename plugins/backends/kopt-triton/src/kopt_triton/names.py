"""What the names of a Python source stand for, and where its expressions lie, from its text alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class SourceTree:
    """A parsed source. Raises SyntaxError or ValueError where it is none."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.module = ast.parse(source)
        self._rows = source.encode().splitlines(keepends=True)
        self._starts = [0]
        for row in self._rows:
            self._starts.append(self._starts[-1] + len(row.decode()))
        self._parents = {
            child: node for node in ast.walk(self.module) for child in ast.iter_child_nodes(node)
        }
        self._bound: dict[ast.AST, dict[str, list[ast.AST]]] = {}
        self._shared = {
            name
            for node in ast.walk(self.module)
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Return where a node lies: start and end in characters."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._at(node.lineno, node.col_offset),
            self._at(node.end_lineno, node.end_col_offset),
        )

    def _at(self, line: int, column: int) -> int:
        """Return an offset in characters; ast counts columns in bytes of UTF-8."""
        return self._starts[line - 1] + len(self._rows[line - 1][:column].decode())

    def text(self, node: ast.expr) -> str:
        """Return a node's text."""
        start, end = self.span(node)
        return self.source[start:end]

    def number(self, node: ast.expr | None) -> ast.Constant | None:
        """Return an int literal that may be rewritten where it stands, also in ``tl.constexpr``."""
        if isinstance(node, ast.Call) and called(node) == "constexpr" and len(node.args) == 1:
            node = node.args[0]
        if not isinstance(node, ast.Constant) or type(node.value) is not int:
            return None
        # Python 3.11 says nothing true of places in an f-string.
        return node if _is_int(self.text(node), node.value) else None

    def literal(self, node: ast.expr | None) -> ast.Constant | None:
        """Return the int literal that an expression is, or that its name is assigned once."""
        if isinstance(node, ast.Name):
            value = self.value(node)
            return self.number(value) if isinstance(value, ast.expr) else None
        return self.number(node)

    def value(self, name: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """Return what a name is assigned, or the function that it names.

        None where its scope binds it more than once, or in any other way.
        """
        if name.id in self._shared:
            return None
        for scope in self._scopes(name):
            if found := self._bindings(scope).get(name.id):
                return self._assigned(found[0]) if len(found) == 1 else None
        return None

    def _assigned(self, target: ast.AST) -> ast.expr | ast.FunctionDef | None:
        if isinstance(target, ast.FunctionDef):
            return target
        statement = self._parents.get(target)
        if isinstance(statement, ast.AnnAssign):
            return statement.value
        if isinstance(statement, ast.Assign):
            return statement.value
        unpacked = self._parents.get(statement) if isinstance(statement, ast.Tuple) else None
        if isinstance(unpacked, ast.Assign) and isinstance(statement, ast.Tuple):
            return _item(statement, unpacked.value, target)
        return None

    def _scopes(self, node: ast.AST) -> Iterator[Scope]:
        """Yield the scopes that a name is looked up in, innermost first."""
        at: ast.AST | None = self._parents.get(node)
        while at is not None:
            if isinstance(at, (*_FUNCTIONS, ast.Module)):
                yield at
            at = self._parents.get(at)

    def _bindings(self, scope: Scope) -> dict[str, list[ast.AST]]:
        """Return what binds each name of a scope; comprehensions count as part of it."""
        if scope not in self._bound:
            found: dict[str, list[ast.AST]] = {}
            for node in _inside(scope):
                for name in _bound_names(node):
                    found.setdefault(name, []).append(node)
            self._bound[scope] = found
        return self._bound[scope]


def called(node: ast.expr) -> str:
    """Return the last name of what is called or named: ``jit`` for ``@triton.jit(...)``."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def int_of(number: ast.Constant) -> int:
    """Return the value of an int literal."""
    assert isinstance(number.value, int)
    return number.value


def _inside(scope: Scope) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, those of the scopes in it left out."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _bound_names(node: ast.AST) -> list[str]:
    """Return the names that a node itself binds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    name = getattr(node, "rest", None) or getattr(node, "name", None)
    return [name] if isinstance(name, str) else []


def _item(targets: ast.Tuple, values: ast.expr, target: ast.AST) -> ast.expr | None:
    """Return the value of one target of ``a, b = 1, 2``."""
    if not isinstance(values, ast.Tuple) or len(values.elts) != len(targets.elts):
        return None
    if any(isinstance(item, ast.Starred) for item in (*targets.elts, *values.elts)):
        return None
    return next(v for t, v in zip(targets.elts, values.elts, strict=True) if t is target)


def _is_int(text: str, value: int) -> bool:
    if not re.fullmatch(r"\w+", text, re.ASCII):
        return False
    try:
        return int(text, 0) == value
    except ValueError:
        return False
