"""Reading a reference's source: parsed, never run."""

from __future__ import annotations

import ast
import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from kopt.errors import ProblemError

_BLOCKS = (ast.If, ast.Try, ast.With)


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text (without a byte-order mark). Raises ProblemError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProblemError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        ) from error
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {error.strerror}") from error


def parse(text: str, path: Path) -> ast.Module:
    """Return the syntax tree of ``text``; raises ProblemError with the line of a syntax error."""
    try:
        with warnings.catch_warnings():  # about invalid escapes: the author's business
            warnings.simplefilter("ignore")
            tree = ast.parse(text, filename=str(path))
            compile(tree, str(path), "exec", dont_inherit=True)  # finds a parameter named twice
            return tree
    except SyntaxError as error:
        raise ProblemError(f"{path}:{error.lineno or 1}: syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{path}: cannot be parsed as Python: {error}") from error


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those in its ``if``, ``try`` and ``with`` blocks included."""
    for statement in body:
        yield statement
        if isinstance(statement, _BLOCKS):
            yield from statements(statement.body)
        if isinstance(statement, ast.If | ast.Try):
            yield from statements(statement.orelse)
        if isinstance(statement, ast.Try):
            yield from statements(statement.finalbody)
            for handler in statement.handlers:
                yield from statements(handler.body)


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the module's functions by name; of several with one name the last, as at run time."""
    return {s.name: s for s in statements(tree.body) if isinstance(s, ast.FunctionDef)}


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the module's classes by name."""
    return {s.name: s for s in statements(tree.body) if isinstance(s, ast.ClassDef)}


def find_function(tree: ast.Module, name: str, path: Path) -> ast.FunctionDef:
    """Return the module's function called ``name``. Raises ProblemError with what to do."""
    found = functions(tree)
    if name in found:
        return found[name]
    for statement in statements(tree.body):
        if isinstance(statement, ast.AsyncFunctionDef) and statement.name == name:
            raise ProblemError(
                f"{path}:{statement.lineno}: {name} is async; write a plain function"
            )
        if name in bound_names(statement):
            raise ProblemError(
                f"{path}:{statement.lineno}: {name} is not defined by a 'def'; kopt reads the "
                f"parameters without running the file, so write 'def {name}(...):' that calls it"
            )
    raise ProblemError(f"{path}: no function {name!r}{suggestion(name, found)}")


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds in its own scope."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, _BLOCKS):
        inner = list(statements([statement]))[1:]
        return set().union(*map(bound_names, inner))
    nodes = ast.walk(statement)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def sibling_import(tree: ast.AST, folder: Path) -> tuple[int, str] | None:
    """Return line and module of the first import of a neighbouring file, None without one.

    Only the reference's own text reaches the judge process: a neighbour would be missing there.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            return node.lineno, "." * node.level + (node.module or "")
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        else:
            continue
        for module in modules:
            if _is_sibling(module.split(".")[0], folder):
                return node.lineno, module
    return None


def refuse_sibling_imports(tree: ast.AST, path: Path) -> None:
    """Raise ProblemError where a reference imports a file beside it."""
    found = sibling_import(tree, path.parent)
    if found is not None:
        line, module = found
        raise ProblemError(
            f"{path}:{line}: imports the neighbouring module {module!r}, but a reference must be "
            f"one file (only its own text reaches the judge process); put what it needs of "
            f"{module!r} into {path.name}, or install {module!r} as a package under another name"
        )


def _is_sibling(name: str, folder: Path) -> bool:
    if name in sys.stdlib_module_names:
        return False
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or what is known, or nothing, to end a message with."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (known: {', '.join(names)})" if names else ""
