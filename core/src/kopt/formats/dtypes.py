"""The dtypes that a problem's inputs may have, and which random values fit each."""

from __future__ import annotations

from typing import Literal

from kopt.errors import ProblemError
from kopt.formats.python_source import suggestion

Kind = Literal["float", "int", "bool"]

KIND_OF: dict[str, Kind] = {
    "float64": "float", "float32": "float", "float16": "float", "bfloat16": "float",
    "int64": "int", "int32": "int", "int16": "int", "int8": "int", "uint8": "int", "bool": "bool",
}  # fmt: skip
DEFAULT_DISTRIBUTION: dict[Kind, Literal["normal", "integers", "bernoulli"]] = {
    "float": "normal", "int": "integers", "bool": "bernoulli",
}  # fmt: skip
DISTRIBUTIONS: dict[Kind, tuple[str, ...]] = {
    "float": ("normal", "uniform", "integers", "bernoulli", "zeros", "ones"),
    "int": ("integers", "bernoulli", "zeros", "ones"),
    "bool": ("bernoulli", "zeros", "ones"),
}
_SHORT = {
    "double": "float64", "fp64": "float64", "f64": "float64", "float": "float32",
    "fp32": "float32", "f32": "float32", "half": "float16", "fp16": "float16", "f16": "float16",
    "bf16": "bfloat16", "long": "int64", "int": "int32", "i64": "int64", "i32": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "boolean": "bool",
}  # fmt: skip


def check_dtype(dtype: str, where: str) -> Kind:
    """Return what kind of number a dtype holds; raises ProblemError where kopt has no such input."""
    if dtype in KIND_OF:
        return KIND_OF[dtype]
    if dtype.startswith("complex"):
        raise ProblemError(
            f"{where}: dtype {dtype!r} is not supported: tolerances are defined for real numbers "
            f"only; take the real view (torch.view_as_real) as the input"
        )
    plain = _SHORT.get(dtype) or dtype.removeprefix("torch.")
    hint = (
        f"; write {plain!r}" if plain in KIND_OF and plain != dtype else suggestion(dtype, KIND_OF)
    )
    raise ProblemError(f"{where}: unknown dtype {dtype!r}{hint}")


def integer_range(dtype: str) -> tuple[int, int]:
    """Return the smallest value of an integer dtype and one more than its largest."""
    bits = int(dtype.lstrip("uint"))
    return (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
