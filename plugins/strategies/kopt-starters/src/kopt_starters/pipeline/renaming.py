"""Puts a prefix before every name that a module defines, so that modules can be joined."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

Edit: TypeAlias = tuple[int, int, bytes]
"""From where to where, and what to put there."""


def top_level(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module defines, those of its imports left out."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found |= _stored(node)
    return frozenset(found)


def _stored(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def prefixed(source: str, prefix: str) -> str:
    """Return a module's source in which each name that it defines begins with ``prefix``.

    Names of a function's own (parameters, what it assigns) stay, also where the module defines
    the same name: then they hide it. Comments and layout stay.
    """
    tree = ast.parse(source)
    text = source.encode()
    finder = _Finder(text, top_level(tree), prefix.encode())
    finder.visit(tree)
    for start, end, new in sorted(finder.edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text.decode()


class _Finder(ast.NodeVisitor):
    """Collects where a module's own names stand."""

    def __init__(self, text: bytes, names: frozenset[str], prefix: bytes) -> None:
        self.edits: list[Edit] = []
        self._text = text
        self._prefix = prefix
        self._visible = names
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _change(self, start: int, name: str) -> None:
        written = name.encode()
        assert self._text[start : start + len(written)] == written
        self.edits.append((start, start + len(written), self._prefix + written))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._visible:
            self._change(self._at(node.lineno, node.col_offset), node.id)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Names within braces: before Python 3.12 a tree does not say where they stand."""
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & self._visible
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        for place in re.finditer(rb"\{[^{}]*\}", self._text[start:end]):
            for word in re.finditer(rb"(?<![\w.'\"])[A-Za-z_]\w*", place[0]):
                if word[0].decode() in used:
                    self._change(start + place.start() + word.start(), word[0].decode())

    def _rename(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if node.name in self._visible:
            start = self._at(node.lineno, node.col_offset)
            found = re.compile(rb"(def|class)\s+").match(self._text, start)
            assert found is not None
            self._change(found.end(), node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class's own names hide the module's where it is defined, but not within its methods."""
        self._rename(node)
        for outside in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(outside)
        everything = self._visible
        hiding = everything - top_level(ast.Module(node.body, []))
        for each in node.body:
            self._visible = hiding
            if isinstance(each, ast.FunctionDef):
                self._signature(each)
                self._visible = everything
                self._within(each.args, each.body)
            else:
                self.visit(each)
        self._visible = everything

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._rename(node)
        self._signature(node)
        self._within(node.args, node.body)

    def _signature(self, node: ast.FunctionDef) -> None:
        for outside in [*node.decorator_list, *_outside(node.args)]:
            self.visit(outside)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in _outside(node.args):
            self.visit(outside)
        self._within(node.args, [node.body])

    def _within(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        outside = self._visible
        own = {each.arg for each in _parameters(arguments)}
        for each in body:
            own |= _stored(each)
        self._visible = outside - own
        for each in body:
            self.visit(each)
        self._visible = outside


def _parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (each for each in (arguments.vararg, arguments.kwarg) if each)


def _outside(arguments: ast.arguments) -> Iterator[ast.expr]:
    """Yield what a signature evaluates outside: annotations and defaults."""
    yield from (each.annotation for each in _parameters(arguments) if each.annotation)
    yield from (each for each in (*arguments.defaults, *arguments.kw_defaults) if each)
