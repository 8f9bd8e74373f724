"""What prompts tell of a problem and a device, as words and numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kopt.model.work import bound_ms, work_of
from kopt_rewrite.ideas import one_line
from kopt_rewrite.rendering import data_text, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.device import Device, Target
    from kopt.model.problem import (
        ArgumentInfo,
        Operand,
        OperatorCall,
        Problem,
        Signature,
        TensorInfo,
        WorkloadSignature,
    )

_MOST_OPERATORS = 24
_NAMES = {"cpp": "C++", "cuda": "CUDA C++", "triton": "Triton", "torch": "PyTorch"}
_HALF = ("float16", "bfloat16")


def known_language(language: str) -> bool:
    """Return whether there is a description of a language's kernel files."""
    return data_text("formats", f"{language}.md") is not None


def facts_of(problem: Problem, signature: Signature, target: Target) -> dict[str, object]:
    """Return what every prompt about a problem may use."""
    first = signature.first
    return {
        "problem": _problem(problem, signature),
        "operators": list(_operators(first)),
        "tolerance": _tolerance(problem, signature),
        "work": list(_work(problem, first, target.device)),
        "device": list(device_lines(target.device)),
        "language": language_name(target.language),
        "format": (data_text("formats", f"{target.language}.md") or "").strip(),
    }


def language_name(language: str) -> str:
    """Return what a language is called in a sentence."""
    return _NAMES.get(language, language)


def parameters(signature: Signature) -> list[str]:
    """Return the names of the reference's own arguments, module state left out."""
    return [a.name for a in signature.first.arguments if a.kind != "state"]


def device_lines(device: Device) -> Iterator[str]:
    """Yield what is known of a device and does not change from session to session."""
    unit = "streaming multiprocessors" if device.kind == "cuda" else "CPUs"
    yield f"{one_line(device.name, 120)} ({device.architecture}), {device.units} {unit}"
    yield f"memory {device.memory_bytes / 2**30:.4g} GiB, last-level cache {device.cache_bytes / 2**20:.4g} MiB"
    peaks = device.peaks
    if peaks is not None:
        rates = {
            "copy": (peaks.copy_gb_s, "GB/s"), "read": (peaks.read_gb_s, "GB/s"),
            "write": (peaks.write_gb_s, "GB/s"), "float32 products": (peaks.fp32_tflops, "TFLOP/s"),
            "TF32 products": (peaks.tf32_tflops, "TFLOP/s"),
            "bfloat16 products": (peaks.bf16_tflops, "TFLOP/s"),
            "float16 products": (peaks.fp16_tflops, "TFLOP/s"),
            "float8 products": (peaks.fp8_tflops, "TFLOP/s"),
            "an empty launch": (peaks.launch_us, "us"),
        }  # fmt: skip
        known = [f"{name} {number(rate)} {unit}" for name, (rate, unit) in rates.items() if rate]
        if known:
            yield "measured on it: " + ", ".join(known)
    if device.versions:
        pairs = (f"{name} {device.versions[name]}" for name in sorted(device.versions))
        yield one_line(", ".join(pairs), 300)


def copy_line(signature: Signature, device: Device) -> str:
    """Return how long moving the compulsory bytes takes here, launch included; empty: not known.

    A small call cannot reach the bound, which launches do not count in.
    """
    copy_ms = device.copy_ms(signature.first.compulsory_bytes)
    if copy_ms is None:
        return ""
    return f"a plain copy of as many bytes as have to be moved takes {number(1e3 * copy_ms)} us here, launch included"


def _problem(problem: Problem, signature: Signature) -> dict[str, object]:
    readable = problem.reference.kind != "pickled"
    return {
        "name": one_line(problem.name, 120),
        "source": problem.reference.source if readable else "",
        "entry": one_line(problem.reference.entry, 120),
        "mutates": one_line(", ".join(problem.mutates), 400),
        "workloads": [
            _workload(name, _role(problem, name), info) for name, info in signature.workloads.items()
        ],
    }  # fmt: skip


def _role(problem: Problem, name: str) -> str:
    try:
        return problem.workload(name).role
    except KeyError:
        return "measure"


def _workload(name: str, role: str, info: WorkloadSignature) -> dict[str, object]:
    return {
        "name": one_line(name, 80),
        "timed": role == "measure",
        "arguments": [_argument(argument) for argument in info.arguments],
        "outputs": [_tensor(output) for output in info.outputs],
        "structure": "" if info.structure == "tensor" else one_line(info.structure, 400),
    }


def _argument(argument: ArgumentInfo) -> str:
    state = " (module state)" if argument.kind == "state" else ""
    if argument.tensor is not None:
        return _tensor(argument.tensor) + state
    name = one_line(argument.name, 120)
    if argument.kind == "other":
        return f"{name}: no tensor and no number"
    return f"{name} = {one_line(repr(argument.value), 240)}{state}"


def _tensor(info: TensorInfo) -> str:
    return f"{one_line(info.name, 120)}: {info.dtype}{list(info.shape)}"


def _operators(workload: WorkloadSignature) -> Iterator[str]:
    for call in workload.trace[:_MOST_OPERATORS]:
        yield _call(call)
    rest = Counter(call.name for call in workload.trace[_MOST_OPERATORS:])
    if rest:
        counted = ", ".join(f"{count} {name}" for name, count in rest.most_common(8))
        yield f"... and {rest.total()} more: {one_line(counted, 400)}"


def _call(call: OperatorCall) -> str:
    given = [_operand(operand) for operand in call.operands] or list(call.inputs)
    given += [f"{name}={_operand(operand)}" for name, operand in call.keywords.items()]
    dtypes = [*call.dtypes, *[""] * len(call.shapes)]
    made = [f"{dtype}{list(shape)}" for dtype, shape in zip(dtypes, call.shapes, strict=False)]
    left = f"{', '.join(call.outputs)} = " if call.outputs else ""
    right = f" -> {', '.join(made)}" if made else ""
    return one_line(f"{left}{call.name}({', '.join(given)}){right}", 240)


def _operand(operand: Operand) -> str:
    if operand.tensor:
        return operand.tensor
    if operand.items:
        return f"[{', '.join(_operand(item) for item in operand.items)}]"
    return str(operand.value)


def _tolerance(problem: Problem, signature: Signature) -> dict[str, Any]:
    dtypes = sorted({out.dtype for info in signature.workloads.values() for out in info.outputs})
    half = any(dtype in _HALF for dtype in dtypes)
    return {
        "factor": number(problem.tolerance.factor or (3.0 if half else 2.0)),
        "precision": problem.tolerance.precision,
        "dtypes": dtypes,
        "exact": [d for d in dtypes if not d.startswith(("float", "bfloat", "complex"))],
    }


def _work(problem: Problem, workload: WorkloadSignature, device: Device) -> Iterator[str]:
    work = work_of(workload)
    yield f"bytes that have to be moved at least: {work.compulsory_bytes:,}"
    for part in work.matrix:
        yield f"operations of {part.kind}s in {part.dtype}: {part.flops:,}"
    if work.vector_ops:
        yield f"elements that the other operators produce or reduce: {work.vector_ops:,}"
    bound = bound_ms(work, device.peaks, problem.tolerance.precision) if device.peaks else None
    if bound is not None and bound.total_ms is not None:
        yield (
            f"least time at the rates measured on this device: {number(1e3 * bound.total_ms)} us, "
            f"limited by {bound.limited_by}"
        )
