"""Triton functions for results of 16 bits: relative errors below 2**-16, in fewer instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt_starters.graph import Graph

_EXP = """
@triton.jit
def _exp(x):
    return tl.exp2(x * 1.4426950408889634)
"""
_EXPM1 = '''
@triton.jit
def _expm1(x):
    """exp(x) - 1, its Taylor series for |x| < 1/16."""
    return tl.where(tl.abs(x) < 0.0625, x + x * x * (0.5 + x * 0.16666667), _exp(x) - 1.0)
'''
_TANH = '''
@triton.jit
def _tanh(x):
    """1 - 2 / (exp(2 x) + 1), its Taylor series for |x| < 1/16."""
    large = 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)
    return tl.where(tl.abs(x) < 0.0625, x - x * x * x * 0.33333334, large)
'''
_SOFTPLUS = '''
@triton.jit
def _softplus(x):
    """max(x, 0) + log(1 + e), e = exp(-|x|): e times a minimax polynomial (relative error 2e-6)."""
    e = tl.exp2(tl.abs(x) * -1.4426950408889634)
    p = e * 0.014539063915852251 - 0.06759692516074405
    p = (p * e + 0.15056979370344337) * e - 0.2357374154310347
    p = (p * e + 0.3312585610834869) * e - 0.49988375381530425
    return tl.where(x > 0, x, 0.0) + e * (p * e + 0.9999989280414097)
'''
_GELU = '''
@triton.jit
def _gelu(x):
    """max(x, 0) - |x| Q(|x|), Q the normal distribution's tail: a minimax polynomial of log2 Q."""
    a = tl.minimum(tl.abs(x), 16.0)  # where Q is 0 already
    p = a * -1.8348464406316e-06 + 6.159897542210352e-05
    p = (p * a - 0.0009305300073564028) * a + 0.008507909988400859
    p = (p * a - 0.0539601045625614) * a - 0.4584643628255941
    p = (p * a - 1.151251054580138) * a - 0.9999952940325816
    return tl.where(x > 0, x, 0.0 * x) - a * tl.exp2(p)
'''
_LOG = '''
@triton.jit
def _log(x):
    """The hardware's, in error by 2**-22 near 1 (PTX: lg2.approx), where the next number is 2**-8 away."""
    return tl.extra.libdevice.fast_logf(x)
'''
_HALVES = {
    "_exp": _EXP, "_expm1": _EXPM1, "_gelu": _GELU, "_softplus": _SOFTPLUS, "_tanh": _TANH,
}  # fmt: skip
"""By name, as HELPERS of device_functions."""
_EIGHT_BITS = {"_log": _LOG}
"""For bfloat16 alone: relative errors below 2**-13, for arguments of its eight bits. The interpreter, which has no such function,
refuses bfloat16 anyway."""


def sufficient(graph: Graph) -> Mapping[str, str]:
    """Return the functions, by name, that are exact enough; none unless all values have 16 bits."""
    values = [output for node in graph.nodes for output in node.outputs]
    values += [v for a in graph.arguments if (v := graph.tensor(a.name)) is not None]
    dtypes = {value.dtype for value in values if "float" in value.dtype}
    if not dtypes <= {"float16", "bfloat16"}:
        return {}
    return {**_HALVES, **_EIGHT_BITS} if "float16" not in dtypes else _HALVES
