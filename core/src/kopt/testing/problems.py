"""Tiny problems, and the signatures that running them teaches: no framework is needed for either."""

from __future__ import annotations

from kopt.model.problem import (
    ArgumentInfo,
    InputSpec,
    Operand,
    OperatorCall,
    Problem,
    ReferenceSource,
    Signature,
    TensorInfo,
    Tolerance,
    Workload,
    WorkloadSignature,
)

_ADD = "def vector_add(x, y):\n    return x + y\n"
_SUM = "def row_sum(x):\n    return x.sum(-1)\n"


def function_problem(
    source: str,
    entry: str,
    inputs: tuple[InputSpec, ...],
    *,
    workloads: tuple[Workload, ...] = (Workload(),),
    tolerance: Tolerance | None = None,
    mutates: tuple[str, ...] = (),
) -> Problem:
    """Return the problem of a function in Python source, named as the function is."""
    reference = ReferenceSource(kind="function", source=source, entry=entry)
    return Problem(
        name=entry, format="testing", reference=reference, inputs=inputs, workloads=workloads,
        tolerance=tolerance or Tolerance(), mutates=mutates,
    )  # fmt: skip


def vector_add(length: int = 1024, dtype: str = "float32") -> Problem:
    """Two vectors of ``length`` elements, added."""
    inputs = tuple(InputSpec(name=name, shape=(length,), dtype=dtype) for name in "xy")
    return function_problem(_ADD, "vector_add", inputs)


def row_sum(rows: int = 16, cols: int = 64, dtype: str = "float32") -> Problem:
    """The sum of each row of a ``rows`` x ``cols`` matrix."""
    inputs = (InputSpec(name="x", shape=(rows, cols), dtype=dtype),)
    return function_problem(_SUM, "row_sum", inputs)


def vector_add_signature(length: int = 1024) -> Signature:
    """What opening ``vector_add(length)`` teaches."""
    shape = (length,)
    add = OperatorCall(
        name="aten.add.Tensor", inputs=("x", "y"), outputs=("%2",), shapes=(shape,),
        operands=(Operand(tensor="x"), Operand(tensor="y")), dtypes=("float32",),
    )  # fmt: skip
    return _signature({"x": shape, "y": shape}, shape, add)


def row_sum_signature(rows: int = 16, cols: int = 64) -> Signature:
    """What opening ``row_sum(rows, cols)`` teaches."""
    total = OperatorCall(
        name="aten.sum.dim_IntList", inputs=("x",), outputs=("%1",), shapes=((rows,),),
        scalars=((-1,),), operands=(Operand(tensor="x"), Operand(value=(-1,))), dtypes=("float32",),
    )  # fmt: skip
    return _signature({"x": (rows, cols)}, (rows,), total)


def _signature(
    inputs: dict[str, tuple[int, ...]], output: tuple[int, ...], operator: OperatorCall
) -> Signature:
    tensors = [TensorInfo(name=name, dtype="float32", shape=s) for name, s in inputs.items()]
    out = TensorInfo(name="out0", dtype="float32", shape=output)
    elements = sum(t.elements for t in [*tensors, out])
    workload = WorkloadSignature(
        arguments=tuple(ArgumentInfo(name=t.name, kind="tensor", tensor=t) for t in tensors),
        outputs=(out,), compulsory_bytes=4 * elements,
        memory_bytes=4 * (elements + 2 * out.elements) + 24 * elements,
        trace=(operator,),
    )  # fmt: skip
    return Signature(workloads={"default": workload})
