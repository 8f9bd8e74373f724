"""Cutting one function out of a file, with the imports and module-level names that it needs."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable
from pathlib import Path

from kopt.errors import ProblemError
from kopt.formats.python_source import bound_names, find_function, parse, sibling_import, statements
from kopt.model.record import Record

_IMPORTS = (ast.Import, ast.ImportFrom)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)
_MODULE_NAMES = frozenset({*dir(builtins), "__name__", "__file__", "__doc__"})


class Excerpt(Record):
    """A function's own small file, and what its first home has besides."""

    source: str
    left_out: tuple[str, ...]
    """Statements with effects that were not copied, as ``line 7: torch.manual_seed(0)``."""
    unresolved: tuple[str, ...]
    """Names that the copied code uses and that nothing in the file defines."""


def excerpt(text: str, function: str, path: Path) -> Excerpt:
    """Return ``function`` of a file's ``text`` with all that it needs of that file.

    Raises ProblemError where there is no such function, or where it needs a neighbouring file.
    """
    tree = parse(text, path)
    find_function(tree, function, path)
    needed, chosen = _closure(tree, function)
    source = _written(chosen, needed, text)
    unresolved = _undefined(source)
    stars = [s for s in tree.body if _is_star(s)]
    if unresolved and stars:
        chosen = [s for s in tree.body if s in chosen or s in stars]
        source, unresolved = _written(chosen, needed, text), []
    _refuse_neighbours(source, function, path)
    left_out = [_described(s) for s in tree.body if s not in chosen and _has_effects(s)]
    return Excerpt(source=source, left_out=tuple(left_out), unresolved=tuple(unresolved))


def _closure(tree: ast.Module, function: str) -> tuple[set[str], list[ast.stmt]]:
    """Return the names needed, and the statements that define them, in the file's order."""
    imported = {n for s in statements(tree.body) if isinstance(s, _IMPORTS) for n in bound_names(s)}
    needed, chosen = {function}, [s for s in tree.body if _is_future(s)]
    grown = True
    while grown:
        grown = False
        for statement in tree.body:
            if statement in chosen or _is_main_guard(statement):
                continue
            if bound_names(statement) & needed or _changed(statement) & (needed - imported):
                chosen.append(statement)
                needed |= _used(statement)
                grown = True
    return needed, sorted(chosen, key=tree.body.index)


def _used(statement: ast.stmt) -> set[str]:
    """Return the module-level names that a statement refers to."""
    return set() if isinstance(statement, _IMPORTS) else _globals(ast.unparse(statement))[0]


def _globals(source: str) -> tuple[set[str], set[str]]:
    """Return the module-level names that ``source`` refers to, and those that it defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        top = symtable.symtable(source, "<excerpt>", "exec")
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    defined = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    scopes = list(top.get_children())
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        outer = [s for s in scope.get_symbols() if s.is_global()]
        used |= {s.get_name() for s in outer}
        defined |= {s.get_name() for s in outer if s.is_assigned() and s.is_declared_global()}
    return used, defined


def _undefined(source: str) -> list[str]:
    used, defined = _globals(source)
    return sorted(used - defined - _MODULE_NAMES)


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names whose objects a statement changes, as in ``TABLE[0] = 1``."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        places: list[ast.expr] = [statement.value.func]
    elif isinstance(statement, ast.Assign | ast.Delete):
        places = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        places = [statement.target]
    else:
        return set()
    return {root for place in places if (root := _root(place)) is not None}


def _root(place: ast.expr) -> str | None:
    inner = place
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) and inner is not place else None


def _has_effects(statement: ast.stmt) -> bool:
    if _is_main_guard(statement):
        return False
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, _ASSIGNMENTS):
        return bool(_changed(statement))
    inner = list(statements([statement]))[1:]
    return any(map(_has_effects, inner))


def _described(statement: ast.stmt) -> str:
    first = ast.unparse(statement).splitlines()[0]
    return f"line {statement.lineno}: {first[:70]}{'...' if len(first) > 70 else ''}"


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in _globals(ast.unparse(statement.test))[0]


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_star(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _refuse_neighbours(source: str, function: str, path: Path) -> None:
    found = sibling_import(ast.parse(source), path.parent)
    if found is not None:
        raise ProblemError(
            f"{path}: {function} needs the neighbouring module {found[1]!r}, but a reference must "
            f"be one file; copy what it needs into {path.name} first"
        )


def _written(chosen: Iterable[ast.stmt], needed: set[str], text: str) -> str:
    """Return the statements as a file: two blank lines around blocks and after the imports."""
    source = ""
    last: ast.stmt | None = None
    for statement in chosen:
        if last is not None:
            alike = isinstance(last, _IMPORTS) == isinstance(statement, _IMPORTS)
            block = hasattr(last, "body") or hasattr(statement, "body")
            source += "\n" if alike and not block else "\n\n\n"
        source += _copied(statement, needed, text)
        last = statement
    return source + "\n"


def _copied(statement: ast.stmt, needed: set[str], text: str) -> str:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return _narrowed(statement, needed)
    simple = not hasattr(statement, "body")
    if simple:  # other statements may share its line
        return ast.get_source_segment(text, statement) or ast.unparse(statement)
    decorators = getattr(statement, "decorator_list", [])
    start = min([statement.lineno, *(d.lineno for d in decorators)])
    lines = re.split(r"\r\n|\r|\n", text)  # as the parser counts: splitlines() knows more breaks
    return "\n".join(lines[start - 1 : statement.end_lineno])


def _narrowed(statement: ast.Import | ast.ImportFrom, needed: set[str]) -> str:
    """Return an import of the needed names only."""
    if _is_future(statement) or _is_star(statement):
        return ast.unparse(statement)
    names = [a for a in statement.names if (a.asname or a.name).split(".")[0] in needed]
    if isinstance(statement, ast.Import):
        return ast.unparse(ast.Import(names=names))
    return ast.unparse(ast.ImportFrom(module=statement.module, names=names, level=statement.level))
