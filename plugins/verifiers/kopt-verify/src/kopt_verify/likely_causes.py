"""What of a kernel's source may explain wrong values: said after the evidence, never a verdict."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt.model.problem import Signature
    from kopt.model.trial import Trial

_PRECISION = frozenset({"input_precision", "allow_tf32"})
_PRECISION_AT = 3
"""Position of ``input_precision`` among the arguments of ``tl.dot``."""


def likely_cause(trial: Trial) -> str:
    """Return a sentence on what may explain inaccurate results; empty where nothing stands out.

    Triton multiplies float32 blocks in TF32, with 10 bits of mantissa, unless it is told not to.
    """
    candidate = trial.candidate
    if candidate.language != "triton" or not _is_float32(trial.reference.signature):
        return ""
    lines = _unsaid(candidate.text)
    if not lines:
        return ""
    where = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
    return (
        f"; {where}: tl.dot of float32 defaults to TF32, which keeps 10 bits of mantissa: say "
        "input_precision='ieee', or 'tf32x3'"
    )


def _is_float32(signature: Signature) -> bool:
    """Whether float32 is what the reference is given."""
    tensors = [argument.tensor for argument in signature.first.arguments if argument.tensor]
    return any(tensor.dtype == "float32" for tensor in tensors)


def _unsaid(source: str) -> list[int]:
    """Return the lines of ``tl.dot`` without a precision."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return []
    return sorted({call.lineno for call in calls if _is_dot(call) and not _says(call)})


def _is_dot(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "dot"
        and (getattr(owner, "id", None) == "tl" or getattr(owner, "attr", None) == "language")
    )


def _says(call: ast.Call) -> bool:
    named = {word.arg for word in call.keywords}
    return bool(named & _PRECISION) or None in named or len(call.args) > _PRECISION_AT
