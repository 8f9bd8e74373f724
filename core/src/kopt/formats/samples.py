"""Input specifications from example arguments: tensors of any framework, numbers, strings."""

from __future__ import annotations

import math
from typing import Any

from kopt.errors import ProblemError
from kopt.formats.dtypes import check_dtype
from kopt.model.problem import InputSpec


def spec_of(name: str, value: Any, keyword: bool, label: str) -> InputSpec:
    """Return the specification from which arguments like ``value`` are drawn.

    :param label: the problem's name, for messages.
    Raises ProblemError where kopt has no such argument.
    """
    if isinstance(value, InputSpec):
        _check_given(value, f"{label}: input {name!r}")
        return value.model_copy(update={"name": name, "keyword": keyword})
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item() if callable(getattr(value, "item", None)) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{label}: input {name!r} is {value!r}; a scalar must be finite")
    if isinstance(value, bool | int | float | str):
        # Built-in types only: numpy's float64 is a float, an IntEnum an int.
        plain = next(kind for kind in (bool, int, float, str) if isinstance(value, kind))
        return InputSpec(name=name, value=plain(value), keyword=keyword)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _tensor(name, value, keyword, f"{label}: input {name!r}")
    raise ProblemError(
        f"{label}: input {name!r} is a {type(value).__name__}, and kopt passes tensors, numbers and "
        f"strings only; wrap the function in one that has a parameter for each tensor and makes "
        f"the {type(value).__name__} itself, or leave the argument out if it has a default"
    )


def _check_given(spec: InputSpec, where: str) -> None:
    if spec.shape is None:
        return
    check_dtype(spec.dtype, where)
    if not all(isinstance(extent, int) and extent > 0 for extent in spec.shape):
        raise ProblemError(
            f"{where}: shape {list(spec.shape)} must be positive integers; for sizes that vary "
            f"write a problem folder ('kopt init FILE:FUNCTION')"
        )


def _tensor(name: str, value: Any, keyword: bool, where: str) -> InputSpec:
    dtype = str(value.dtype).removeprefix("torch.")
    shape = tuple(int(extent) for extent in value.shape)
    kind = check_dtype(dtype, where)
    if 0 in shape:
        raise ProblemError(f"{where} is empty (shape {list(shape)}); pass a sample with elements")
    spec = InputSpec(name=name, shape=shape, dtype=dtype, distribution="normal", keyword=keyword)
    if kind == "float":
        return spec
    try:
        least, largest, total = int(value.min()), int(value.max()), int(value.sum())
    except Exception as error:
        raise ProblemError(
            f"{where}: its values cannot be read ({error}); pass a dense tensor that holds some"
        ) from error
    if kind == "bool":
        seen = {"distribution": "bernoulli", "high": total / math.prod(shape)}
    else:
        seen = {"distribution": "integers", "low": float(least), "high": float(largest + 1)}
    return spec.model_copy(update=seen)
