"""Turns a trace of framework operators into the expression of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kopt_starters.expression import (
    Apply,
    Expression,
    Leaf,
    Named,
    Opaque,
    Reduce,
    inverse,
    power,
    product,
    reshaped,
    size,
    total,
)

if TYPE_CHECKING:
    from kopt.model.problem import OperatorCall, WorkloadSignature

_CASTS = frozenset({"_to_copy", "to"})
_SAME = frozenset({"alias", "detach", "clone", "contiguous", "lift_fresh"})
_RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten"})
_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "max": "max"}
_WIDE = frozenset({"float32", "float64"})
_MOST_NODES = 200
"""Larger than any operator known here. A value that is used twice per step of a recurrence is
written out twice: without a bound, expressions would double with each step."""


def plain_dtype(dtype: str) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return dtype.removeprefix("torch.")


def expression_of(signature: WorkloadSignature) -> Expression | None:
    """Return what the only output is; None where the trace has effects or parts beyond that."""
    if signature.structure != "tensor" or len(signature.outputs) != 1 or not signature.trace:
        return None
    output = signature.outputs[0]
    produced = {name for call in signature.trace for name in call.outputs}
    final = output.name if output.name in produced else signature.trace[-1].outputs[0]
    if not _all_needed(signature.trace, final):
        return None
    values: dict[str, Expression] = {
        argument.name: Leaf(argument.name, argument.tensor.shape)
        for argument in signature.arguments
        if argument.tensor is not None
    }
    viewed: set[str] = set()
    for call in signature.trace:
        if not _step(call, values, viewed, plain_dtype(output.dtype)):
            return None
    return values[final]


def _all_needed(trace: Sequence[OperatorCall], final: str) -> bool:
    needed = {final}
    for call in reversed(trace):
        if needed.isdisjoint(call.outputs):
            return False
        needed.update(call.inputs)
    return True


def _step(
    call: OperatorCall, values: dict[str, Expression], viewed: set[str], output_dtype: str
) -> bool:
    """Bind a call's results in ``values``; False where it changes something seen elsewhere."""
    name = call.name.removeprefix("aten.").split(".")[0]
    in_place = name.endswith("_") and not name.startswith("__")
    if in_place:
        changed = call.inputs[0] if call.inputs else ""
        if not changed.startswith("%") or changed in viewed:
            return False
        name = name.removesuffix("_")
    shape = call.shapes[0] if call.shapes else ()
    if name in _RESHAPES or name in _SAME:
        viewed.update(call.inputs)
        viewed.update(call.outputs)
    inputs = [values.get(value, Opaque(value, shape)) for value in call.inputs]
    found = _value(name, call, inputs, shape, output_dtype) if inputs else None
    for output in call.outputs:
        values[output] = Opaque(output, shape)
    if found is not None and size(found) > _MOST_NODES:
        found = None
    if call.outputs:
        values[call.outputs[0]] = found or Opaque(call.outputs[0], shape)
    if in_place and call.outputs != (changed,):
        viewed.update((changed, *call.outputs))
    if in_place:
        values[changed] = values[call.outputs[0]] if call.outputs else Opaque(changed, shape)
    return True


def _value(
    name: str, call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...], dtype: str
) -> Expression | None:
    first = inputs[0]
    if name in _CASTS:
        return first if _harmless_cast(call, dtype) else None
    if name in _SAME:
        return first
    if name in _RESHAPES:
        return reshaped(first, shape)
    if name in _REDUCTIONS:
        return _reduction(name, call, first, shape)
    rule = _RULES.get(name)
    return rule(call, inputs, shape) if rule else None


def _harmless_cast(call: OperatorCall, output_dtype: str) -> bool:
    found = [plain_dtype(s) for s in call.scalars if isinstance(s, str) and "float" in s]
    return len(found) == 1 and (found[0] in _WIDE or found[0] == output_dtype)


def _numbers(call: OperatorCall) -> list[float]:
    return [s for s in call.scalars if isinstance(s, int | float) and not isinstance(s, bool)]


def _dims(call: OperatorCall, rank: int) -> tuple[int, ...]:
    """The dimensions that a call names, sorted and not negative; all of them if it names none."""
    for scalar in call.scalars:
        if isinstance(scalar, tuple) and scalar:
            return tuple(sorted(int(dim) % rank for dim in scalar if isinstance(dim, int)))
        if isinstance(scalar, int) and not isinstance(scalar, bool):
            return (scalar % rank,)
    return tuple(range(rank))


def _reduction(
    name: str, call: OperatorCall, first: Expression, shape: tuple[int, ...]
) -> Expression | None:
    if len(call.inputs) != 1 or not first.shape:
        return None
    dims = _dims(call, len(first.shape))
    kind = _REDUCTIONS[name]
    assert kind in ("sum", "mean", "max")
    return Reduce(kind, first, dims, shape)  # type: ignore[arg-type]


def _variance(
    call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
) -> Expression | None:
    dims = next((s for s in call.scalars if isinstance(s, tuple) and s), None)
    if dims is None or _numbers(call) != [0]:
        return None
    return Reduce("var", inputs[0], _dims(call, len(inputs[0].shape)), shape)


def _add(sign: float) -> Callable[..., Expression | None]:
    def rule(
        call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
    ) -> Expression | None:
        numbers = _numbers(call)
        if len(inputs) == 2 and len(numbers) <= 1:
            return total((1.0, inputs[0]), (sign * (numbers or [1.0])[0], inputs[1]))
        if len(inputs) == 1 and len(numbers) == 1:
            return total((1.0, inputs[0]), constant=sign * numbers[0])
        return None

    return rule


def _multiply(
    call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
) -> Expression | None:
    numbers = _numbers(call)
    if len(inputs) == 2 and not numbers:
        return product(*inputs)
    return product(inputs[0], scale=numbers[0]) if len(inputs) == len(numbers) == 1 else None


def _divide(
    call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
) -> Expression | None:
    if any(isinstance(scalar, str) for scalar in call.scalars):
        return None  # a rounding mode
    numbers = _numbers(call)
    if len(inputs) == 2 and not numbers:
        return product(inputs[0], inverse(inputs[1]))
    if len(inputs) == len(numbers) == 1 and numbers[0] != 0:
        return product(inputs[0], scale=1 / numbers[0])
    return None


def _power(
    call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
) -> Expression | None:
    numbers = _numbers(call)
    if not call.name.startswith("aten.pow.Tensor_Scalar") and not call.name.startswith(
        "aten.pow_.Scalar"
    ):
        return None
    return power(inputs[0], numbers[0]) if len(inputs) == len(numbers) == 1 else None


def _softmax(
    call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
) -> Expression | None:
    dims = _dims(call, len(shape)) if shape else ()
    return Named("softmax", inputs[0], dims, None, None, None, shape) if len(dims) == 1 else None


def _norm(operator: str) -> Callable[..., Expression | None]:
    def rule(
        call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
    ) -> Expression | None:
        extents = next((s for s in call.scalars if isinstance(s, tuple)), ())
        floats = [s for s in call.scalars if isinstance(s, float)]
        source = inputs[0]
        dims = tuple(range(len(source.shape) - len(extents), len(source.shape)))
        weight, bias = (*inputs[1:], None, None)[:2]
        eps = floats[-1] if floats else None
        if operator == "layer_norm":
            return Named("layer_norm", source, dims, weight, bias, eps, source.shape)
        return Named("rms_norm", source, dims, weight, None, eps, source.shape)

    return rule


def _apply(function: str) -> Callable[..., Expression | None]:
    def rule(
        call: OperatorCall, inputs: list[Expression], shape: tuple[int, ...]
    ) -> Expression | None:
        source = inputs[0]
        return Apply(function, source, source.shape)  # type: ignore[arg-type]

    return rule


_RULES: dict[str, Callable[..., Expression | None]] = {
    "_fused_rms_norm": _norm("rms_norm"),
    "_softmax": _softmax,
    "add": _add(1.0),
    "div": _divide,
    "exp": _apply("exp"),
    "layer_norm": _norm("layer_norm"),
    "mul": _multiply,
    "native_layer_norm": _norm("layer_norm"),
    "pow": _power,
    "reciprocal": lambda call, inputs, shape: inverse(inputs[0]),
    "rms_norm": _norm("rms_norm"),
    "rsqrt": _apply("rsqrt"),
    "softmax": _softmax,
    "sqrt": _apply("sqrt"),
    "square": lambda call, inputs, shape: power(inputs[0], 2),
    "sub": _add(-1.0),
    "var": _variance,
}
