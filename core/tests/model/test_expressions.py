"""Expressions of headers: conditions, which kernels say what they are made for with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kopt.errors import ExpressionError
from kopt.model.expressions import evaluate, unmet

NAMES = {"x": SimpleNamespace(shape=(3, 24), numel=72), "N": 8}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x.shape[1] % N == 0", True),
        ("x.shape[1] <= 2 * N", False),
        ("1 <= x.shape[0] < 4", True),
        ("1 <= x.shape[0] < 3", False),
        ("N != 8 or x.numel > 70", True),
        ("N == 8 and x.numel > 72", False),
    ],
)
def test_conditions(text, value):
    assert evaluate(text, NAMES) is value


def test_the_first_condition_that_does_not_hold_is_named():
    assert unmet(["N == 8", "N > 8", "N < 0"], NAMES) == "N > 8"
    assert unmet(["N == 8"], NAMES) is None
    assert unmet([], NAMES) is None


@pytest.mark.parametrize("text", ["N is 8", "N in x.shape", "not N", "x.secret == 1", "M > 1"])
def test_what_is_not_allowed(text):
    with pytest.raises(ExpressionError):
        unmet([text], NAMES)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("x.numel()", "write 'x.numel', without brackets"),
        ("x.shape(0)", "write 'x.shape', without brackets"),
        ("lin.weight", "write 'lin_weight'"),
        ("x.size", "of a tensor there are itemsize, ndim, numel, shape, stride"),
        ("ceil(n)", "functions are cdiv, max, min, next_pow2, prod"),
        ("len(x)", "functions are "),
    ],
)
def test_what_is_not_allowed_is_told_with_what_is(text: str, instead: str) -> None:
    with pytest.raises(ExpressionError, match=f"not allowed here; {instead}"):
        evaluate(text, {"x": 1, "n": 2, "lin_weight": 3})
