"""One view of a candidate out of what several profilers saw of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kopt.model.diagnosis import KernelProfile, Profile

PRECEDENCE = ("ncu", "torchprof", "static", "kopt")
"""Whose figure counts where two have one: measured by counters, traced, read, derived."""

RAN = ("ncu", "torchprof")
"""Who lists the launches of a call, and not what there is in its code."""


@dataclass
class MergedKernel:
    """One kernel launch, or several alike, with every profiler's metrics."""

    name: str
    metrics: dict[str, float] = field(default_factory=dict)
    launches: int = 1
    share: float = 1.0
    """Part of the time of all kernels, from 0 to 1, of all its launches."""


@dataclass
class Merged:
    """A call and its kernels."""

    call: dict[str, float]
    kernels: list[MergedKernel]


def merge(profiles: Sequence[Profile]) -> Merged:
    """Return the profiles as one; a metric of two profilers has the value of the preferred one.

    Kernels are matched by name, as far as it says the same in all spellings; else in the order
    of their launches where there are equally many; else those left over stay apart where they
    were timed, and are dropped where another profiler saw what really ran.
    """
    ordered = sorted(profiles, key=lambda profile: _rank(profile.profiler))
    call: dict[str, float] = {}
    kernels: list[MergedKernel] = []
    for profile in ordered:
        for metric in profile.metrics:
            call.setdefault(metric.name, metric.value)
        _add(kernels, profile.kernels)
        if profile.profiler in RAN and profile.kernels:
            call.setdefault("kernel_launches", float(len(profile.kernels)))
    return Merged(call, _grouped(kernels))


def short_name(name: str) -> str:
    """Return a kernel's own name, without namespaces, template arguments and parameters."""
    if mangled := _from_mangled(name):
        return mangled
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ").strip()
    return re.split(r"[<(]", plain, maxsplit=1)[0].rsplit("::", 1)[-1].strip() or name


def _from_mangled(name: str) -> str:
    """Return the last source name of an Itanium C++ mangled one; empty where it is none."""
    match = re.match(r"_ZN?[rVK]*(?=\d)", name)
    rest, last = (name[match.end() :], "") if match else ("", "")
    while length := re.match(r"\d{1,4}", rest):
        end = length.end() + int(length.group())
        last, rest = rest[length.end() : end], rest[end:]
    return last


def _rank(profiler: str) -> int:
    return PRECEDENCE.index(profiler) if profiler in PRECEDENCE else len(PRECEDENCE)


def _values(kernel: KernelProfile) -> dict[str, float]:
    return {metric.name: metric.value for metric in kernel.metrics}


def _add(kernels: list[MergedKernel], others: Sequence[KernelProfile]) -> None:
    """Add a profiler's kernels to those of the preferred ones before it."""
    first = not kernels
    left = _match_by_name(kernels, others)
    unnamed = [kernel for kernel in kernels if not _named_in(kernel, others)]
    if left and len(left) == len(unnamed) and len(kernels) == len(others):
        for kernel, other in zip(unnamed, left, strict=True):
            _fill(kernel, other)
        return
    for other in left:
        if first or "duration_us" in _values(other):
            kernels.append(MergedKernel(other.name, _values(other)))


def _named_in(kernel: MergedKernel, others: Sequence[KernelProfile]) -> bool:
    return any(short_name(other.name) == short_name(kernel.name) for other in others)


def _match_by_name(
    kernels: Sequence[MergedKernel], others: Sequence[KernelProfile]
) -> list[KernelProfile]:
    """Fill kernels from those of the same name, the nth from the nth; return those left over.

    One entry that was read from the code stands for every launch of its name.
    """
    by_name: dict[str, list[MergedKernel]] = {}
    for kernel in kernels:
        by_name.setdefault(short_name(kernel.name), []).append(kernel)
    names = Counter(short_name(other.name) for other in others)
    seen: Counter[str] = Counter()
    left = []
    for other in others:
        name = short_name(other.name)
        same = by_name.get(name, [])
        at, seen[name] = seen[name], seen[name] + 1
        targets = same if names[name] == 1 else same[at : at + 1]
        for kernel in targets:
            _fill(kernel, other)
        if not targets:
            left.append(other)
    return left


def _fill(kernel: MergedKernel, other: KernelProfile) -> None:
    for name, value in _values(other).items():
        kernel.metrics.setdefault(name, value)


def _grouped(kernels: Sequence[MergedKernel]) -> list[MergedKernel]:
    """Return launches of one kernel with one shape as one, with their shares summed.

    The longest launch stands for all.
    """
    groups: dict[tuple[str, float | None, float | None], list[tuple[MergedKernel, float]]] = {}
    for kernel, share in zip(kernels, _shares(kernels), strict=True):
        shape = (kernel.metrics.get("grid_blocks"), kernel.metrics.get("block_threads"))
        groups.setdefault((short_name(kernel.name), *shape), []).append((kernel, share))
    made = []
    for members in groups.values():
        longest, _ = max(members, key=lambda member: member[1])
        share = sum(share for _, share in members)
        made.append(MergedKernel(longest.name, longest.metrics, len(members), share))
    return made


def _shares(kernels: Sequence[MergedKernel]) -> list[float]:
    """Return each kernel's part of all kernels' time; equal parts where no time is known."""
    for name in ("duration_us", "share_percent"):
        times = [max(0.0, kernel.metrics.get(name, 0.0)) for kernel in kernels]
        if (total := sum(times)) > 0:
            return [time / total for time in times]
    return [1 / len(kernels) for _ in kernels]


SUMMED = frozenset(
    {
        "duration_us", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes",
        "load_requests", "store_requests", "global_load_bytes", "global_store_bytes",
        "local_instructions", "local_sectors", "shared_requests", "shared_wavefronts",
        "shared_conflicts", "atomic_requests", "atomic_sectors", "instructions",
        "fp32_operations", "fp64_operations", "integer_instructions",
        "conversion_instructions", "memory_instructions", "control_instructions",
        "static_scalar_float_instructions", "static_vector_instructions",
    }
)  # fmt: skip
"""Metrics of kernels that add up over a call; others are averaged by time."""


def over_kernels(kernels: Sequence[MergedKernel]) -> Mapping[str, float]:
    """Return each kernel metric over a whole call, where every kernel has it."""
    if not kernels:
        return {}
    names = set.intersection(*(set(kernel.metrics) for kernel in kernels))
    return {
        name: sum(
            kernel.metrics[name] * (kernel.launches if name in SUMMED else kernel.share)
            for kernel in kernels
        )
        for name in sorted(names)
    }
