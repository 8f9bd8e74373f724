"""Profiles of one candidate: what its times and its work tell, and what every profiler says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.diagnosis import Profile, metrics_of
from kopt.model.work import bound_ms, work_of

if TYPE_CHECKING:
    from kopt.hooks import Hooks
    from kopt.model.device import Device
    from kopt.model.evaluation import Evaluation
    from kopt.model.probe import Probe
    from kopt.model.problem import Problem, Signature

_BEYOND = 110.0
_FASTER = (
    "it is faster than the rates that were measured allow: its data stays in a cache, or the device "
    "was busy when it was measured; `kopt doctor --measure` on an idle machine tells"
)
OWN = "kopt"
"""Who a profile is of that needs no profiler."""


def profiled(
    hooks: Hooks,
    problem: Problem,
    signature: Signature,
    evaluation: Evaluation,
    device: Device,
    probe: Probe,
) -> list[Profile]:
    """Return what every profiler says of a correct candidate, and before it what its times tell."""
    found = hooks.kopt_profile(problem, evaluation, device, probe)
    return [own_profile(problem, signature, evaluation, device, found), *found]


def own_profile(
    problem: Problem,
    signature: Signature,
    evaluation: Evaluation,
    device: Device,
    others: list[Profile],
) -> Profile:
    """Return what the first workload's times say, beside its work and the device's rates.

    Rates over a whole call: compulsory bytes and matrix operations over the measured time; the
    bound is kopt.model.work's. What was not measured is absent.
    """
    name, workload = next(iter(signature.workloads.items()))
    work = work_of(workload)
    precision = problem.tolerance.precision
    bound = bound_ms(work, device.peaks, precision) if device.peaks else None
    timed = evaluation.measurement.workloads if evaluation.measurement else ()
    times = next((each for each in timed if each.workload == name), None)
    seconds = times.latency_ms / 1e3 if times else None
    total_ms = bound.total_ms if bound else None
    copy_ms = device.copy_ms(work.compulsory_bytes)
    values = {
        "latency_us": times.latency_ms * 1e3 if times else None,
        "call_us": times.call_ms * 1e3 if times else None,
        "compulsory_bytes": work.compulsory_bytes,
        "matrix_flops": work.matrix_flops,
        "vector_ops": work.vector_ops,
        "bound_us": _micro(total_ms),
        "memory_bound_us": _micro(bound.memory_ms if bound else None),
        "compute_bound_us": _micro(bound.compute_ms if bound else None),
        "achieved_gb_s": work.compulsory_bytes / seconds / 1e9 if seconds else None,
        "achieved_tflops": work.matrix_flops / seconds / 1e12
        if seconds and work.matrix_flops
        else None,
        "of_bound_percent": 100 * total_ms / times.latency_ms if total_ms and times else None,
        "copy_us": _micro(copy_ms),
        "of_copy_percent": 100 * copy_ms / times.latency_ms if copy_ms and times else None,
        "launch_overhead_us": device.peaks.launch_us if device.peaks else None,
        "moved_over_compulsory": _moved(others, work.compulsory_bytes),
    }
    notes = [] if device.peaks else [f"{device.name} was never measured: `kopt doctor --measure`"]
    if values["of_bound_percent"] and values["of_bound_percent"] > _BEYOND:
        notes.append(_FASTER)
    return Profile(
        profiler=OWN, candidate=evaluation.id, metrics=metrics_of(values), notes=tuple(notes)
    )


def _micro(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds * 1e3


def _moved(others: list[Profile], compulsory: int) -> float | None:
    """Return the bytes that all kernels moved from and to DRAM over those that had to be."""
    for profile in others:
        per_kernel = [
            [m.value for m in kernel.metrics if m.name == "dram_bytes"]
            for kernel in profile.kernels
        ]
        if per_kernel and all(per_kernel) and compulsory:
            return sum(values[0] for values in per_kernel) / compulsory
    return None
