"""The ``[inputs.NAME]`` tables of a native problem, and the shapes that they give each workload."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from kopt.errors import ExpressionError, ProblemError
from kopt.formats.dtypes import (
    DEFAULT_DISTRIBUTION,
    DISTRIBUTIONS,
    KIND_OF,
    Kind,
    check_dtype,
    integer_range,
)
from kopt.formats.python_source import suggestion
from kopt.formats.toml_table import Table
from kopt.model.expressions import evaluate
from kopt.model.problem import InputSpec, Scalar, Workload

_TENSOR_KEYS = ("dtype", "distribution", "low", "high")


def read_inputs(table: Table) -> tuple[InputSpec, ...]:
    """Return the inputs in the file's order. Raises ProblemError."""
    inputs = table.table("inputs")
    specs = []
    for name, data in inputs.rest().items():
        if not isinstance(data, dict):
            raise ProblemError(f"{inputs.where(name)} must be a table: [inputs.{name}]")
        specs.append(_read_input(name, Table(data, table.file, f"inputs.{name}")))
    if not specs:
        raise ProblemError(
            f"{table.file}: no [inputs.NAME]; write one for each parameter of the reference"
        )
    return tuple(specs)


def _read_input(name: str, table: Table) -> InputSpec:
    keyword = table.take("keyword", bool, False) or False
    shape = table.take("shape", list)
    value = table.take_any("value")
    if shape is None and value is None:
        raise ProblemError(
            f"{table.file}: {table.name} has neither shape nor value; a tensor needs "
            f'shape = ["rows", 64], a scalar needs value = 1.5'
        )
    if shape is None:
        return _scalar(name, value, keyword, table)
    if value is not None:
        raise ProblemError(
            f"{table.file}: {table.name} has shape and value; it is one or the other"
        )
    return _tensor(name, shape, keyword, table)


def _scalar(name: str, value: Any, keyword: bool, table: Table) -> InputSpec:
    for key in _TENSOR_KEYS:
        if table.take_any(key) is not None:
            raise ProblemError(f"{table.where(key)}: only a tensor (with a shape) has a {key}")
    table.finish()
    if not isinstance(value, bool | int | float | str):
        raise ProblemError(
            f"{table.where('value')} must be a number, string or bool, not {value!r}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{table.where('value')} must be finite, not {value!r}")
    return InputSpec(name=name, value=cast("Scalar", value), keyword=keyword)


def _tensor(name: str, shape: list[Any], keyword: bool, table: Table) -> InputSpec:
    for extent in shape:
        if type(extent) not in {int, str}:
            raise ProblemError(
                f"{table.where('shape')}: {extent!r} is neither an integer nor an expression over "
                f"the workload's sizes, as in 'rows * 2'"
            )
    dtype = table.take("dtype", str, "float32") or ""
    kind = check_dtype(dtype, table.where("dtype"))
    default = DEFAULT_DISTRIBUTION[kind]
    distribution = table.take("distribution", str, default) or ""
    if distribution not in DISTRIBUTIONS[kind]:
        raise ProblemError(
            f"{table.where('distribution')}: {distribution!r} does not fit {dtype}"
            f"{suggestion(distribution, DISTRIBUTIONS[kind])}"
        )
    low, high = _range(distribution, dtype, kind, table)
    table.finish()
    return InputSpec(
        name=name, shape=tuple(shape), dtype=dtype, distribution=cast("Any", distribution), low=low,
        high=high, keyword=keyword,
    )  # fmt: skip


def _range(
    distribution: str, dtype: str, kind: Kind, table: Table
) -> tuple[float | None, float | str | None]:
    """Return low and high with their defaults, as far as the distribution has them."""
    low = table.take("low", float)
    if distribution == "integers" and table.has("high", str):
        start = 0.0 if low is None else low
        _check_integers(start, None, dtype, kind, table)
        return start, table.take("high", str)
    high = table.take("high", float)
    if distribution not in {"uniform", "integers", "bernoulli"} and (low, high) != (None, None):
        key = "high" if low is None else "low"
        raise ProblemError(f"{table.where(key)}: {distribution!r} has no range; use 'uniform'")
    if distribution == "uniform":
        low, high = (0.0 if low is None else low), (1.0 if high is None else high)
    elif distribution == "integers":
        low = 0.0 if low is None else low
        if high is None:
            raise ProblemError(
                f"{table.where('high')} is missing: 'integers' are drawn from low (0) to high - 1; "
                f"for indices write the number of rows that they point into, as 1000 or 'rows'"
            )
        _check_integers(low, high, dtype, kind, table)
    elif distribution == "bernoulli":
        high = 0.5 if high is None else high
        if low is not None or not 0 <= high <= 1:
            raise ProblemError(
                f"{table.where('high')}: of 'bernoulli' it is the probability of one, from 0 to 1, "
                f"and there is no low"
            )
    ordered = high is None or low is None or -math.inf < low < high < math.inf
    if not ordered:
        raise ProblemError(f"{table.where('low')}: {low:g} is not below high = {high:g}")
    return low, high


def _check_integers(low: float, high: float | None, dtype: str, kind: Kind, table: Table) -> None:
    """Refuse what a dtype does not hold; ``high`` None: it is known at a workload's sizes."""
    if not (low.is_integer() and (high is None or high.is_integer())):
        raise ProblemError(f"{table.where('low')}: 'integers' needs whole numbers for low and high")
    if kind == "int":
        least, end = integer_range(dtype)
        if low < least or (high is not None and high > end):
            raise ProblemError(f"{table.where('high')}: {dtype} holds {least} to {end - 1} only")


def check_shapes(specs: Sequence[InputSpec], workloads: Sequence[Workload], file: Path) -> None:
    """Evaluate every shape for every workload. Raises ProblemError, also for a size of no use."""
    used: set[str] = set()
    for spec in specs:
        if isinstance(spec.high, str):
            used |= _names(spec.high)
            for workload in workloads:
                _check_end(spec, spec.high, workload, f"{file}: inputs.{spec.name}.high")
        for extent in spec.shape or ():
            used |= _names(extent)
            for workload in workloads:
                _extent(extent, workload, f"{file}: inputs.{spec.name}.shape")
    for workload in workloads:
        for size in workload.sizes:
            if size not in used:
                known = [*sorted(used), "name", "weight", "role"]
                raise ProblemError(
                    f"{file}: workload {workload.name!r} has {size!r}, which no shape uses"
                    f"{suggestion(size, known)}"
                )


def _check_end(spec: InputSpec, high: str, workload: Workload, where: str) -> None:
    value = _extent(high, workload, where)
    if value <= (spec.low or 0.0):
        raise ProblemError(
            f"{where}, workload {workload.name!r}: {high!r} gives {value}, which is not above low"
        )
    if KIND_OF[spec.dtype] == "int" and value > integer_range(spec.dtype)[1]:
        raise ProblemError(
            f"{where}, workload {workload.name!r}: {high!r} gives {value}, and {spec.dtype} holds "
            f"{integer_range(spec.dtype)[1] - 1} at most"
        )


def _names(extent: int | str) -> set[str]:
    if isinstance(extent, int):
        return set()
    try:
        return {n.id for n in ast.walk(ast.parse(extent, mode="eval")) if isinstance(n, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # evaluating it reports that


def _extent(extent: int | str, workload: Workload, where: str) -> int:
    try:
        value = extent if isinstance(extent, int) else evaluate(extent, workload.sizes)
    except ExpressionError as error:
        raise ProblemError(f"{where}, workload {workload.name!r}: {error}") from error
    if type(value) is not int:
        raise ProblemError(
            f"{where}, workload {workload.name!r}: {extent!r} gives {value!r}, which is no "
            f"integer; divide with //"
        )
    if value <= 0:
        raise ProblemError(
            f"{where}, workload {workload.name!r}: {extent!r} gives {value}; extents are positive"
        )
    return value
