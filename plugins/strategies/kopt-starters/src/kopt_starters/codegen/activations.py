"""Activations, and losses without their reduction."""

from __future__ import annotations

import math

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.functions import Call, Rule, between, literal, of_x


def _hardtanh(call: Call) -> str:
    low, high = call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0)
    return between(call.floating(0, "self"), literal(low).text, literal(high).text)


def _leaky_relu(call: Call) -> str:
    slope = call.operand(1, "negative_slope", 0.01).to("float")
    x = call.floating(0, "self")
    return f"tl.where({x} > 0, {x}, {x} * {slope})"


def _elu(call: Call) -> str:
    alpha, scale = call.number(1, "alpha", 1.0), call.number(2, "scale", 1.0)
    inner = literal(call.number(3, "input_scale", 1.0)).text
    x = call.floating(0, "self")
    above, below = literal(scale).text, literal(alpha * scale).text
    return (
        f"tl.where({x} > 0, {x} * {above}, _expm1(tl.where({x} > 0, 0.0, {x} * {inner})) * {below})"
    )


def _celu(call: Call) -> str:
    alpha, x = literal(call.number(1, "alpha", 1.0)).text, call.floating(0, "self")
    return f"tl.where({x} > 0, {x}, _expm1(tl.where({x} > 0, 0.0, {x} / {alpha})) * {alpha})"


def _selu(call: Call) -> str:
    # The constants of Klambauer et al., Self-Normalizing Neural Networks (2017).
    alpha, scale, x = 1.6732632423543772, 1.0507009873554805, call.floating(0, "self")
    below = f"_expm1(tl.where({x} > 0, 0.0, {x})) * {alpha * scale!r}"
    return f"tl.where({x} > 0, {x} * {scale!r}, {below})"


def _gelu(call: Call) -> str:
    x = call.floating(0, "self")
    if call.node.argument(1, "approximate", "none") == "tanh":
        # (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x**3)
        a = -2 * math.sqrt(2 / math.pi) * math.log2(math.e)
        return f"{x} / (1.0 + tl.exp2({x} * ({a!r} + {0.044715 * a!r} * ({x} * {x}))))"
    return f"_gelu({x})"


def _softplus(call: Call) -> str:
    beta, threshold = call.number(1, "beta", 1.0), call.number(2, "threshold", 20.0)
    x = call.floating(0, "self")
    scaled = x if beta == 1 else f"({x} * {literal(beta).text})"
    soft = f"_softplus({scaled})" + ("" if beta == 1 else f" / {literal(beta).text}")
    return f"tl.where({scaled} > {literal(threshold).text}, {x}, {soft})"


def _threshold(call: Call) -> str:
    x, bound = call.floating(0, "self"), call.floating(1, "threshold")
    return f"tl.where({x} <= {bound}, {call.floating(2, 'value')}, {x})"


def _shrunk(form: str) -> Rule:
    def rule(call: Call) -> str:
        bound = literal(call.number(1, "lambd", 0.5)).text
        return form.replace("{x}", call.floating(0, "self")).replace("{b}", bound)

    return rule


def _prelu(call: Call) -> str:
    x = call.floating(0, "self")
    return f"tl.where({x} > 0, {x}, {x} * {call.floating(1, 'weight')})"


def _squared_error(call: Call) -> str:
    difference = f"({call.floating(0, 'self')} - {call.floating(1, 'target')})"
    return f"{difference} * {difference}"


def _huber(name: str, *, divided: bool) -> Rule:
    """Return a rule for a square near zero and a straight line from ``name`` on."""

    def rule(call: Call) -> str:
        a, b = call.floating(0, "self"), call.floating(1, "target")
        edge = call.number(3, name, 1.0)
        if edge == 0:
            return f"tl.abs({a} - {b})"
        e, d = literal(edge).text, f"tl.abs({a} - {b})"
        square, line = f"0.5 * {d} * {d}", f"({d} - {literal(0.5 * edge).text})"
        if divided:
            return f"tl.where({d} < {e}, {square} / {e}, {line})"
        return f"tl.where({d} <= {e}, {square}, {e} * {line})"

    return rule


def _dropout(call: Call) -> str:
    train = call.node.argument(2, "train")
    if train is not False:
        raise NotCoveredError("dropout in training")
    return call.floating(0, "self")


ACTIVATIONS: dict[str, Rule] = {
    "_prelu_kernel": _prelu,
    "celu": _celu,
    "dropout": _dropout,
    "elu": _elu,
    "gelu": _gelu,
    "hardshrink": _shrunk("tl.where(tl.abs({x}) <= {b}, 0.0, {x})"),
    "hardsigmoid": of_x("_smaller(tl.where({x} < -3.0, 0.0, {x} + 3.0), 6.0) * (1.0 / 6.0)"),
    "hardswish": of_x("{x} * (_smaller(tl.where({x} < -3.0, 0.0, {x} + 3.0), 6.0) * (1.0 / 6.0))"),
    "hardtanh": _hardtanh,
    "huber_loss": _huber("delta", divided=False),
    "leaky_relu": _leaky_relu,
    "log_sigmoid_forward": of_x("-_softplus(-{x})"),
    "mish": of_x("_mish({x})"),
    "mse_loss": _squared_error,
    "relu": lambda call: (
        f"tl.where({call.operand(0, 'self').to(call.kind)} < 0, "
        f"{literal(0.0 if call.kind == 'float' else 0).text}, {call.operand(0, 'self').to(call.kind)})"
    ),
    "relu6": of_x("_smaller(tl.where({x} < 0, 0.0, {x}), 6.0)"),
    "selu": _selu,
    "sigmoid": of_x("_sigmoid({x})"),
    "silu": of_x("{x} / (1.0 + tl.exp2({x} * -1.4426950408889634))"),
    "smooth_l1_loss": _huber("beta", divided=True),
    "softplus": _softplus,
    "softshrink": _shrunk(
        "tl.where({x} > {b}, {x} - {b}, tl.where({x} < -{b}, {x} + {b}, 0.0 * {x}))"
    ),
    "threshold": _threshold,
}
LOSSES = frozenset({"huber_loss", "mse_loss", "smooth_l1_loss"})
"""Operators whose third argument asks for a reduction: 0 none, 1 mean, 2 sum."""
