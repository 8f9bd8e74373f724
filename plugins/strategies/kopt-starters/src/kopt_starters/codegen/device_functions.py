"""Triton functions that generated kernels call, accurate to float32 also where libdevice is not."""

from __future__ import annotations

import re

_EXPM1 = '''
@triton.jit
def _expm1(x):
    """exp(x) - 1: its Taylor series to x**8 for |x| <= 1/2 (relative error 1e-8)."""
    p = x * (1.0 / 40320) + 1.0 / 5040
    p = p * x + 1.0 / 720
    p = p * x + 1.0 / 120
    p = p * x + 1.0 / 24
    p = p * x + 1.0 / 6
    p = p * x + 0.5
    return tl.where(tl.abs(x) <= 0.5, p * x * x + x, _exp(x) - 1.0)
'''
_EXP = '''
@triton.jit
def _exp(x):
    """exp(x) as 2**n exp(r), |r| <= ln(2)/2: the hardware's alone loses accuracy with |x|."""
    n = tl.minimum(tl.maximum(tl.floor(x * 1.4426950408889634 + 0.5), -126.0), 127.0)
    r = (x - n * 0.693145751953125) - n * 1.4286068203094173e-06
    return tl.exp2(n) * tl.exp2(r * 1.4426950408889634)
'''
_LOG1P = '''
@triton.jit
def _log1p(x):
    """log(1 + x) with the error of 1 + x divided out (Kahan's form)."""
    u = 1.0 + x
    exact = (u == 1.0) | (u == float("inf"))
    return tl.where(exact, x, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))
'''
_TANH = '''
@triton.jit
def _tanh(x):
    """(e - 1) / (e + 1) with e = exp(2 |x|), from _expm1 where |x| is small."""
    a = tl.minimum(tl.abs(x), 20.0)
    small = _expm1(tl.minimum(a, 0.25) * 2.0)
    t = tl.where(a <= 0.25, small / (small + 2.0), 1.0 - 2.0 / (tl.exp(a * 2.0) + 1.0))
    return tl.where(x != x, x, tl.where(x < 0, -t, t))
'''
_SIGMOID = """
@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))
"""
_MISH = '''
@triton.jit
def _mish(x):
    """x tanh(log(1 + exp(x))) = x (e e + 2 e) / (e e + 2 e + 2), in e = exp(-|x|) for x > 0."""
    e = tl.exp(-tl.abs(x))
    above = tl.where(x > 0, 1.0 + 2.0 * e, e * e + 2.0 * e)
    return x * (above / (above + tl.where(x > 0, 2.0 * e * e, 2.0)))
'''
_SOFTPLUS = '''
@triton.jit
def _softplus(x):
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    return tl.where(x > 0, x, 0.0) + tl.where(x != x, x, _log1p(tl.exp(-tl.abs(x))))
'''
_LARGER = '''
@triton.jit
def _larger(a, b):
    """The larger one; NaN where either is."""
    return tl.where((a > b) | (a != a), a, b)
'''
_SMALLER = '''
@triton.jit
def _smaller(a, b):
    """The smaller one; NaN where either is."""
    return tl.where((a < b) | (a != a), a, b)
'''
_PRODUCT = """
@triton.jit
def _product(a, b):
    return a * b
"""
_POW = '''
@triton.jit
def _pow(x, y):
    """x**y by logarithms, in float64 so that float32 is right; signs and zeros as in C."""
    wide = tl.log2(tl.abs(x).to(tl.float64)) * y.to(tl.float64)
    power = tl.exp2(wide).to(tl.float32)
    odd = (tl.floor(y) == y) & (tl.floor(y * 0.5) * 2.0 != y)
    power = tl.where((x < 0) & odd, -power, power)
    power = tl.where((x < 0) & (tl.floor(y) != y), float("nan"), power)
    return tl.where((y == 0) | (x == 1.0), 1.0, power)
'''
_XLOGY = '''
@triton.jit
def _xlogy(x, y):
    """x log(y), and 0 where x is 0 whatever y is, but for NaN."""
    return tl.where(y != y, y, tl.where(x == 0, 0.0, x * tl.log(tl.where(x == 0, 1.0, y))))
'''
HELPERS = {
    "_exp": _EXP,
    "_expm1": _EXPM1,
    "_larger": _LARGER,
    "_log1p": _LOG1P,
    "_mish": _MISH,
    "_pow": _POW,
    "_product": _PRODUCT,
    "_sigmoid": _SIGMOID,
    "_smaller": _SMALLER,
    "_softplus": _SOFTPLUS,
    "_tanh": _TANH,
    "_xlogy": _XLOGY,
}
"""By name, each with the decorator; a kernel's module needs triton and tl imported."""


def helpers_for(text: str) -> str:
    """Return the functions that Triton lines call, and what those call, in order of definition."""
    wanted: set[str] = set()
    looking = [text]
    while looking:
        called = set(re.findall(r"(?<!\w)_[a-z]\w*(?=[(,)])", looking.pop())) & set(HELPERS)
        looking += [HELPERS[name] for name in called - wanted]
        wanted |= called
    return "\n".join(HELPERS[name] for name in sorted(wanted))
