"""The work of a problem: what it must move and compute, and the least time a device needs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kopt.model.flow import Flow
from kopt.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.device import Peaks
    from kopt.model.problem import OperatorCall, Precision, WorkloadSignature

WorkKind = Literal["product", "convolution"]


class MatrixFlops(Record):
    """Floating-point operations of one kind in one dtype; a multiply-add counts two."""

    kind: WorkKind
    dtype: str
    """As ``float32``."""
    flops: int


class Work(Record):
    """What has to be done at least, by the operators that the reference is written in."""

    compulsory_bytes: int
    """Every needed input read once and every output written once."""
    matrix: tuple[MatrixFlops, ...] = ()
    """Products (attention and recurrent layers too) and convolutions, by kind and dtype."""
    vector_ops: int = 0
    """Elements that all other operators produce or reduce."""

    @property
    def matrix_flops(self) -> int:
        """Floating-point operations of all products and convolutions."""
        return sum(part.flops for part in self.matrix)

    @property
    def intensity(self) -> float | None:
        """Matrix operations per compulsory byte; None where nothing is moved."""
        return self.matrix_flops / self.compulsory_bytes if self.compulsory_bytes else None


class Bound(Record):
    """The least time for some work at a device's measured rates; None: a rate was not measured."""

    memory_ms: float | None
    compute_ms: float | None
    """Of the matrix operations, one kind after the other; 0 where there are none."""
    total_ms: float | None
    """The longer one of the two, as both can be done at a time (the roofline model)."""
    limited_by: Literal["memory", "compute"] | None


def work_of(workload: WorkloadSignature) -> Work:
    """Return the work of all outputs of a workload.

    An input that no output needs is left out, and of one that is only looked up (an embedding, a
    slice) just what is. Without a trace, or where an output cannot be found in it, or an argument is
    a list, bytes are those of all arguments and outputs.
    """
    flow = Flow(workload)
    if not flow.complete:
        return _work(flow, workload.trace, workload.compulsory_bytes)
    nbytes = flow.bytes_read(flow.results) + sum(flow.written.values())
    return _work(flow, flow.needed(flow.results), nbytes)


def per_output(workload: WorkloadSignature) -> dict[str, Work]:
    """Return the work of each output alone, by name; arguments changed in place are outputs too.

    What several outputs share is in the work of each of them. An output that no operator made, as
    an argument that is returned, is left out; all are where an argument is a list or a mapping.
    """
    flow = Flow(workload)
    found: dict[str, Work] = {}
    if not flow.known:
        return found
    for name, value in flow.results.items():
        alone = {name: value}
        nbytes = flow.bytes_read(alone) + flow.written[name]
        found[name] = _work(flow, flow.needed(alone), nbytes)
    return found


def _work(flow: Flow, calls: Iterable[OperatorCall], nbytes: int) -> Work:
    flops: dict[tuple[WorkKind, str], int] = {}
    vector_ops = 0
    for call in calls:
        if call.flops:
            kind: WorkKind = "convolution" if "conv" in call.name else "product"
            flops[kind, call.dtype] = flops.get((kind, call.dtype), 0) + call.flops
        else:
            vector_ops += flow.elements(call)
    matrix = tuple(MatrixFlops(kind=k, dtype=d, flops=n) for (k, d), n in sorted(flops.items()))
    return Work(compulsory_bytes=nbytes, matrix=matrix, vector_ops=vector_ops)


def bound_ms(work: Work, peaks: Peaks, precision: Precision = "reference") -> Bound:
    """Return the least time for some work at measured rates.

    :param precision: the problem's ``tolerance.precision``: which float32 arithmetic is right.

    Bytes go at the best bandwidth that was measured. Rates of matrix operations, by dtype:

    - float32: the fastest one of FP32, a third of TF32 and a third of float16. TF32 and float16 have
      11 leading bits each, so two of them make up a float32 (the latter with a scale for its
      range) and three products are as accurate as one in float32. TF32 itself where ``precision``
      says so, and for convolutions under ``reference`` too: PyTorch allows it there by default
      (``torch.backends.cudnn.allow_tf32``).
    - bfloat16, float16: their own rate, or FP32's where that is faster (a CPU without units of its
      own for them).
    - float8: its own rate. All others, as float64: nothing was measured, so None.

    Operators that are neither products nor convolutions count by their bytes alone.
    """
    bandwidth = peaks.bandwidth_gb_s
    memory = work.compulsory_bytes / (bandwidth * 1e6) if bandwidth else None
    compute: float | None = 0.0
    for part in work.matrix:
        rate = _tflops(part, peaks, precision)
        compute = None if compute is None or not rate else compute + part.flops / (rate * 1e9)
    if memory is None or compute is None:
        return Bound(memory_ms=memory, compute_ms=compute, total_ms=None, limited_by=None)
    return Bound(
        memory_ms=memory, compute_ms=compute, total_ms=max(memory, compute),
        limited_by="compute" if compute > memory else "memory",
    )  # fmt: skip


def _tflops(part: MatrixFlops, peaks: Peaks, precision: Precision) -> float | None:
    match part.dtype:
        case "float32":
            return _float32_tflops(part.kind, peaks, precision)
        case "bfloat16":
            return peaks.bf16_tflops and max(peaks.bf16_tflops, peaks.fp32_tflops or 0.0)
        case "float16":
            return peaks.fp16_tflops and max(peaks.fp16_tflops, peaks.fp32_tflops or 0.0)
    return peaks.fp8_tflops if part.dtype.startswith("float8") else None


def _float32_tflops(kind: WorkKind, peaks: Peaks, precision: Precision) -> float | None:
    if not peaks.fp32_tflops:
        return None
    # A device without TF32 or float16 has no such rate, and none is missing then.
    tf32, fp16 = peaks.tf32_tflops or 0.0, peaks.fp16_tflops or 0.0
    allowed = precision == "tf32" or (precision == "reference" and kind == "convolution")
    return max(peaks.fp32_tflops, tf32 if allowed else max(tf32, fp16) / 3)
