"""Triton functions that generated kernels call, accurate to float32 also where libdevice is not."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
_LOG = """
@triton.jit
def _log(x):
    return tl.log(x)
"""
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
    """1 - 2 / (exp(2 |x|) + 1), below 0.55 a minimax polynomial in x x (relative error 1e-9)."""
    a, s = tl.abs(x), x * x
    p = s * -0.006282466729864441 + 0.021077753395352488
    p = (p * s - 0.05385385664227649) * s + 0.13332601672054545
    small = x + x * (s * (p * s - 0.333333180452458))
    large = 1.0 - 2.0 / (tl.exp2(a * 2.8853900817779268) + 1.0)
    return tl.where(a < 0.55, small, tl.where(x < 0, -large, large))
'''
_SIGMOID = """
@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))
"""
_MISH = '''
@triton.jit
def _mish(x):
    """x tanh(log(1 + exp(x))) = x (e e + 2 e) / (e e + 2 e + 2), in e = exp(-|x|) for x > 0."""
    e = tl.exp2(tl.abs(x) * -1.4426950408889634)
    above = tl.where(x > 0, 1.0 + 2.0 * e, e * e + 2.0 * e)
    return x * (above / (above + tl.where(x > 0, 2.0 * e * e, 2.0)))
'''
_SOFTPLUS = '''
@triton.jit
def _softplus(x):
    """log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|): e times a minimax polynomial."""
    e = _exp(-tl.abs(x))
    p = e * -0.0033387308787566684 + 0.020277770463740564
    p = (p * e - 0.057759144793273695) * e + 0.10684537265035027
    p = (p * e - 0.15353277903508358) * e + 0.19692454877418397
    p = (p * e - 0.24957347151214704) * e + 0.33330275670647763
    p = (p * e - 0.4999991418148509) * e + 0.9999999960139832
    return tl.where(x > 0, x, 0.0) + e * p
'''
_GELU = """
@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
"""
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
    return tl.where((x == 0) & (y == y), 0.0, x * _log(y))
'''
_WAIT = '''
@triton.jit
def _wait_for_all(arrived, PIECES: tl.constexpr):
    """Count this program in, and return once all PIECES of them are: what they stored is there."""
    tl.debug_barrier()
    count = tl.atomic_add(arrived, 1, sem="acq_rel") + 1
    while count < PIECES:
        count = tl.atomic_add(arrived, 0, sem="acquire")
'''
HELPERS = {
    "_exp": _EXP,
    "_expm1": _EXPM1,
    "_gelu": _GELU,
    "_larger": _LARGER,
    "_log": _LOG,
    "_log1p": _LOG1P,
    "_mish": _MISH,
    "_pow": _POW,
    "_product": _PRODUCT,
    "_sigmoid": _SIGMOID,
    "_smaller": _SMALLER,
    "_softplus": _SOFTPLUS,
    "_tanh": _TANH,
    "_wait_for_all": _WAIT,
    "_xlogy": _XLOGY,
}
"""By name, each with the decorator; a kernel's module needs triton and tl imported."""


def helpers_for(text: str, instead: Mapping[str, str] | None = None) -> str:
    """Return the functions that Triton lines call, and what those call, in order of definition.

    ``instead`` takes the place of some (see ``short_functions``).
    """
    known = {**HELPERS, **(instead or {})}
    wanted: set[str] = set()
    looking = [text]
    while looking:
        called = set(re.findall(r"(?<!\w)_[a-z]\w*(?=[(,)])", looking.pop())) & set(known)
        looking += [known[name] for name in called - wanted]
        wanted |= called
    return "\n".join(known[name] for name in sorted(wanted))
