"""The configurations of ``@triton.autotune`` as a knob: all of them, or one."""

from __future__ import annotations

import ast
import math

from kopt.model.candidate import Edit, Knob
from kopt_triton.launch_sites import Kernel
from kopt_triton.names import SourceTree, called

ALL = "all"
"""The choice that leaves the selection to Triton, for each key anew."""
_MOST = 256
"""More configurations than this are left to Triton."""


def configuration_knob(tree: SourceTree, kernel: Kernel) -> Knob | None:
    """Return the knob of a kernel's configurations; None where they cannot be counted.

    Its choices are ``all``, the default, and each index: then that one configuration is left.
    """
    place = _given(kernel)
    if place is None:
        return None
    value = tree.value(place) if isinstance(place, ast.Name) else place
    texts = _texts(tree, place, value)
    if not 2 <= len(texts) <= _MOST:
        return None
    start, end = tree.span(place)
    edit = Edit(start=start, end=end, texts=(tree.source[start:end], *texts))
    return Knob(default=ALL, choices=(ALL, *range(len(texts))), edits=(edit,))


def _given(kernel: Kernel) -> ast.expr | None:
    """Return the expression that the decorator gets as ``configs``."""
    decorator = kernel.decorators.get("autotune")
    if not isinstance(decorator, ast.Call):
        return None
    by_name = [word.value for word in decorator.keywords if word.arg == "configs"]
    return next(iter([*by_name, *decorator.args]), None)


def _texts(tree: SourceTree, place: ast.expr, value: ast.AST | None) -> list[str]:
    """Return what to write in place of all configurations to have one of them, for each."""
    if isinstance(value, ast.List | ast.Tuple):
        if not all(isinstance(item, ast.Call) and called(item) == "Config" for item in value.elts):
            return []
        return [f"[{tree.text(item)}]" for item in value.elts]
    if isinstance(value, ast.ListComp):
        all_of_them = tree.text(place)
        return [f"({all_of_them})[{at}:{at + 1}]" for at in range(_length(tree, value))]
    return []


def _length(tree: SourceTree, made: ast.ListComp) -> int:
    """Return how many elements a comprehension over literals has; 0 where that is not known."""
    sizes = [_size(tree, part) for part in made.generators]
    return math.prod(sizes)


def _size(tree: SourceTree, part: ast.comprehension) -> int:
    source: ast.AST | None = part.iter
    if isinstance(source, ast.Name):
        source = tree.value(source)
    if part.ifs or not isinstance(source, ast.List | ast.Tuple):
        return 0
    return 0 if any(isinstance(item, ast.Starred) for item in source.elts) else len(source.elts)
