"""What of a Triton module decides how its kernels are launched: all but the kernels' own bodies."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kopt.model.record import content_id

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate


def launch_id(candidate: Candidate) -> str:
    """Return a hash of a module without comments and without what becomes binaries.

    Empty where the source does not parse. Every knob counts: whether one reaches a grid is not
    told from the source.
    """
    try:
        module = ast.parse(candidate.text)
    except SyntaxError:
        return ""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list)):
            node.body = [ast.Pass()]
    return content_id(ast.dump(module), candidate.entry, sorted(candidate.chosen.items()))


def _is_jit(decorator: ast.expr) -> bool:
    """Whether it is ``@jit``, ``@triton.jit`` or a call of one."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "jit"
