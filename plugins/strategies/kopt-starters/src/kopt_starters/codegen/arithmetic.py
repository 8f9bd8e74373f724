"""Arithmetic, comparisons and other plain element-wise operators."""

from __future__ import annotations

from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.functions import Call, Kind, Rule, between, literal, of_x


def _plus(sign: str, *, reverse: bool = False) -> Rule:
    def rule(call: Call) -> str:
        a, b = call.operand(0, "self").to(call.kind), call.operand(1, "other").to(call.kind)
        alpha = call.node.argument(2, "alpha", 1)
        first, second = (b, a) if reverse else (a, b)
        if alpha != 1:
            second = f"{second} * {call.term(alpha).to(call.kind)}"
        if call.kind == "bool":
            if sign == "-":
                raise NotCoveredError("a difference of bools")
            return f"{first} | {second}"
        return f"{first} {sign} {second}"

    return rule


def _times(call: Call) -> str:
    sign = "&" if call.kind == "bool" else "*"
    return (
        f"{call.operand(0, 'self').to(call.kind)} {sign} {call.operand(1, 'other').to(call.kind)}"
    )


def _divided(call: Call) -> str:
    if call.node.argument(2, "rounding_mode") is not None:
        raise NotCoveredError("a division that rounds")
    return f"{call.floating(0, 'self')} / {call.floating(1, 'other')}"


def _compared(sign: str) -> Rule:
    def rule(call: Call) -> str:
        a, b = call.operand(0, "self"), call.operand(1, "other")
        kind: Kind = "float" if "float" in (a.kind, b.kind) else "int"
        return f"{a.to(kind)} {sign} {b.to(kind)}"

    return rule


def _logical(sign: str) -> Rule:
    def rule(call: Call) -> str:
        a, b = call.operand(0, "self"), call.operand(1, "other")
        if call.node.operator.startswith("bitwise") and call.kind != "bool":
            return f"{a.to('int')} {sign} {b.to('int')}"
        return f"{a.to('bool')} {sign} {b.to('bool')}"

    return rule


def _not(call: Call) -> str:
    if call.node.operator == "bitwise_not" and call.kind != "bool":
        return f"~{call.operand(0, 'self').to('int')}"
    return f"({call.operand(0, 'self').to('int')} == 0)"


def _absolute(call: Call) -> str:
    return f"tl.abs({call.operand(0, 'self').to(call.kind)})"


def _negative(call: Call) -> str:
    return f"-{call.operand(0, 'self').to(call.kind)}"


def _sign(call: Call) -> str:
    x, kind = call.operand(0, "self").to(call.kind), call.kind
    one = "1.0" if kind == "float" else "1"
    zero = "0.0" if kind == "float" else "0"
    return f"tl.where({x} > 0, {one}, tl.where({x} < 0, -{one}, {zero}))"


def _square(call: Call) -> str:
    x = call.operand(0, "self").to(call.kind)
    return f"{x} * {x}"


def _power(call: Call) -> str:
    exponent = call.node.argument(1, "exponent")
    base = call.operand(0, "self")
    if isinstance(exponent, int | float) and exponent in (1, 2, 3, 4):
        return " * ".join([base.to(call.kind)] * int(exponent))
    if call.kind != "float":
        raise NotCoveredError("a power of integers")
    x = base.to("float")
    known = {0.5: f"tl.sqrt_rn({x})", -0.5: f"tl.rsqrt({x})", -1.0: f"1.0 / {x}",
             -2.0: f"1.0 / ({x} * {x})"}  # fmt: skip
    if isinstance(exponent, int | float) and float(exponent) in known:
        return known[float(exponent)]
    both = [f"tl.full([1], {term.to('float')}, tl.float32)" if term.literal else term.to("float")
            for term in (base, call.operand(1, "exponent"))]  # fmt: skip
    return f"_pow({', '.join(both)})"


def _extreme(function: str) -> Rule:
    def rule(call: Call) -> str:
        a, b = call.operand(0, "self"), call.operand(1, "other")
        return f"{function}({a.to(call.kind)}, {b.to(call.kind)})"

    return rule


def _where(call: Call) -> str:
    condition = call.operand(0, "condition").to("bool")
    a, b = call.operand(1, "self").to(call.kind), call.operand(2, "other").to(call.kind)
    return f"tl.where({condition}, {a}, {b})"


def _masked_fill(call: Call) -> str:
    x, value = call.operand(0, "self").to(call.kind), call.operand(2, "value").to(call.kind)
    return f"tl.where({call.operand(1, 'mask').to('bool')}, {value}, {x})"


def _clamp(low: str | None, high: str | None) -> Rule:
    """Return a rule for an operator whose bounds are its arguments of these names."""

    def rule(call: Call) -> str:
        names = [name for name in (low, high) if name]
        given = {name: call.node.argument(at, name) for at, name in enumerate(names, 1)}
        bounds = {n: call.term(v).to(call.kind) for n, v in given.items() if v is not None}
        x = call.operand(0, "self").to(call.kind)
        return between(x, bounds.get(low or ""), bounds.get(high or ""))

    return rule


def _lerp(call: Call) -> str:
    a, b, w = call.floating(0, "self"), call.floating(1, "end"), call.floating(2, "weight")
    return f"tl.where(tl.abs({w}) < 0.5, {a} + {w} * ({b} - {a}), {b} - ({b} - {a}) * (1.0 - {w}))"


def _addc(sign: str) -> Rule:
    def rule(call: Call) -> str:
        x, a, b = (call.floating(n, name) for n, name in enumerate(("self", "tensor1", "tensor2")))
        value = call.term(call.node.argument(3, "value", 1)).to("float")
        return f"{x} + {value} * {a} {sign} {b}"

    return rule


def _xlogy(call: Call) -> str:
    return f"_xlogy({call.floating(0, 'self')}, {call.floating(1, 'other')})"


def _same(call: Call) -> str:
    return call.operand(0, "self").to(call.kind)


def _constant(value: float | None) -> Rule:
    def rule(call: Call) -> str:
        position = 0 if call.node.operator == "scalar_tensor" else 1
        term = literal(value) if value is not None else call.operand(position, "fill_value")
        dtype = {"float": "tl.float32", "int": "tl.int64", "bool": "tl.int1"}[call.kind]
        return f"tl.full([1], {term.to('float' if call.kind == 'float' else 'int')}, {dtype})"

    return rule


ARITHMETIC: dict[str, Rule] = {
    "_to_copy": _same,
    "abs": _absolute,
    "add": _plus("+"),
    "addcdiv": _addc("/"),
    "addcmul": _addc("*"),
    "bitwise_and": _logical("&"),
    "bitwise_not": _not,
    "bitwise_or": _logical("|"),
    "bitwise_xor": _logical("^"),
    "ceil": of_x("tl.ceil({x})"),
    "clamp": _clamp("min", "max"),
    "clamp_max": _clamp(None, "max"),
    "clamp_min": _clamp("min", None),
    "cos": of_x("tl.cos({x})"),
    "div": _divided,
    "eq": _compared("=="),
    "erf": of_x("tl.erf({x})"),
    "exp": of_x("_exp({x})"),
    "exp2": of_x("tl.exp2({x})"),
    "exp_below": of_x("tl.exp2({x} * 1.4426950408889634)"),  # of what is never above 0
    "expm1": of_x("_expm1({x})"),
    "floor": of_x("tl.floor({x})"),
    "full_like": _constant(None),
    "full": _constant(None),
    "ge": _compared(">="),
    "gt": _compared(">"),
    "isnan": of_x("({x} != {x})"),
    "le": _compared("<="),
    "lerp": _lerp,
    "log": of_x("_log({x})"),
    "log10": of_x("_log({x}) * 0.4342944819032518"),
    "log1p": of_x("_log1p({x})"),
    "log2": of_x("tl.log2({x})"),
    "logical_and": _logical("&"),
    "logical_not": _not,
    "logical_or": _logical("|"),
    "logical_xor": _logical("^"),
    "lt": _compared("<"),
    "masked_fill": _masked_fill,
    "maximum": _extreme("_larger"),
    "minimum": _extreme("_smaller"),
    "mul": _times,
    "ne": _compared("!="),
    "neg": _negative,
    "ones": _constant(1),
    "ones_like": _constant(1),
    "pow": _power,
    "reciprocal": of_x("1.0 / {x}"),
    "rsqrt": of_x("tl.rsqrt({x})"),
    "rsub": _plus("-", reverse=True),
    "scalar_tensor": _constant(None),
    "sign": _sign,
    "sin": of_x("tl.sin({x})"),
    "sqrt": of_x("tl.sqrt_rn({x})"),
    "square": _square,
    "sub": _plus("-"),
    "tanh": of_x("_tanh({x})"),
    "trunc": of_x("tl.where({x} < 0, tl.ceil({x}), tl.floor({x}))"),
    "where": _where,
    "xlogy": _xlogy,
    "zeros": _constant(0),
    "zeros_like": _constant(0),
}
