"""What an idea was expected to bring beside what was measured, metric by metric."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kopt.model.metrics import KERNEL_METRICS
from kopt_rewrite.ideas import expectations_of
from kopt_rewrite.lineage import plain
from kopt_rewrite.rendering import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kopt.model.diagnosis import Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History

_UNCHANGED = 0.02
"""A factor this near to 1 is no change, where the measurement's noise is not larger."""
_LITTLE, _MUCH = 0.7, 1.4
"""Parts of the expected change, in logarithms, between which it came as expected."""
_SUMS = frozenset({
    "duration_us", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes",
    "global_load_bytes", "global_store_bytes", "local_instructions", "local_sectors",
    "load_requests", "store_requests", "shared_requests", "shared_wavefronts", "shared_conflicts",
    "atomic_requests", "atomic_sectors", "instructions", "divergent_branches", "fp32_operations",
    "fp64_operations", "integer_instructions", "conversion_instructions", "memory_instructions",
    "control_instructions",
})  # fmt: skip
"""Metrics of a kernel that add up over a call; of others the kernel that takes longest counts."""
_BUILT: Mapping[str, tuple[str, ...]] = {
    "registers_per_thread": ("registers_per_thread", "registers"),
    "spill_bytes": ("spill_bytes",),
    "shared_bytes": ("shared_bytes",),
}
"""Metrics that a build reports of its kernels, with the names it has for them."""


class Unmeasured(Enum):
    """Why nothing is known of a metric, as a prompt says it."""

    FAILED = "It failed before these were measured"
    NOT_PROFILED = "It was not profiled, so these were not measured"
    NOT_SEEN = "No profiler measured these of both kernels"


class Compared(NamedTuple):
    """One metric of an idea."""

    metric: str
    expected: float
    """New value over old one."""
    before: float
    after: float

    @property
    def factor(self) -> float | None:
        """As measured; None where it was zero before."""
        return self.after / self.before if self.before else None


class Comparison(NamedTuple):
    """An idea's expectations, held against what its kernel turned out to be."""

    compared: tuple[Compared, ...]
    unmeasured: tuple[str, ...]
    """Metrics that were expected to change and of which nothing is known."""
    why: Unmeasured
    noise: float
    """Of the times."""

    def verdict(self, one: Compared) -> str:
        """Return in words whether what was expected came true."""
        still = max(_UNCHANGED, self.noise)
        changed = abs(one.after - one.before) > still * abs(one.before)
        wanted = abs(one.expected - 1) > still
        if not changed and one.expected != 1 and not wanted:
            return "both too small to tell"
        if not changed or one.expected == 1:
            return "no change" if wanted else "it changed" if changed else "as expected"
        if (one.after > one.before) != (one.expected > 1):
            return "the other way"
        if not one.after or not one.before:
            return "more than expected"
        part = math.log(one.after / one.before) / math.log(one.expected)
        if part < _LITTLE:
            return "less than expected"
        return "more than expected" if part > _MUCH else "as expected"

    @property
    def lines(self) -> list[str]:
        """As ``latency_us: expected x0.5, measured x0.8 (500 -> 400): less than expected``."""
        return [
            f"{one.metric}: expected x{number(one.expected)}, measured{_factor(one)} "
            f"({number(one.before)} -> {number(one.after)}): {self.verdict(one)}"
            for one in self.compared
        ]

    @property
    def missing(self) -> str:
        """Say of what nothing is known, and why; empty where all was measured."""
        if not self.unmeasured:
            return ""
        return f"{self.why.value}: {', '.join(self.unmeasured)}"

    @property
    def short(self) -> str:
        """As ``latency_us x0.8 for x0.5 (less than expected)``, for lists; empty without any."""
        parts = [
            f"{one.metric}{_factor(one)} for x{number(one.expected)} ({self.verdict(one)})"
            for one in self.compared
        ]
        if parts and self.unmeasured and self.why is Unmeasured.NOT_PROFILED:
            parts.append("not profiled")
        return ", ".join(parts)


def watched(text: str) -> tuple[str, ...]:
    """Return what an idea's text predicts that neither a clock nor a build tells."""
    names = [each.metric for each in expectations_of(plain(text))]
    return tuple(name for name in names if name in KERNEL_METRICS and name not in _BUILT)


def compare(
    evaluation: Evaluation, before: Evaluation | None, history: History
) -> Comparison | None:
    """Return a candidate's expectations beside what became of them.

    None where nothing was expected, or where it came from no kernel.
    """
    expected = expectations_of(plain(evaluation.candidate.idea))
    if not expected or before is None or before.measurement is None:
        return None
    now = evaluation.measurement
    if now is None:
        names = tuple(each.metric for each in expected)
        return Comparison((), names, Unmeasured.FAILED, before.measurement.noise)
    found, unmeasured = [], []
    for each in expected:
        pair = _pair(each.metric, before, evaluation, history)
        if pair is None:
            unmeasured.append(each.metric)
        else:
            found.append(Compared(each.metric, each.factor, *pair))
    profiled = history.profiles(evaluation.id)
    why = Unmeasured.NOT_SEEN if profiled else Unmeasured.NOT_PROFILED
    noise = max(now.noise, before.measurement.noise)
    return Comparison(tuple(found), tuple(unmeasured), why, noise)


def _pair(
    metric: str, before: Evaluation, now: Evaluation, history: History
) -> tuple[float, float] | None:
    """Return a metric's values from the same source: times, a profiler that saw both, or the builds."""
    sources = [
        (_timed(before), _timed(now)),
        *_profiles(history.profiles(before.id), history.profiles(now.id)),
        (_built(before), _built(now)),
    ]
    for old, new in sources:
        if metric in old and metric in new:
            return old[metric], new[metric]
    return None


def _timed(evaluation: Evaluation) -> dict[str, float]:
    found = evaluation.measurement
    if found is None:
        return {}
    values = {"latency_us": 1e3 * found.latency_ms}
    if len(found.workloads) == 1:
        [workload] = found.workloads
        values |= {"call_us": 1e3 * workload.call_ms, "achieved_gb_s": workload.bandwidth_gb_s}
    return values


def _profiles(
    before: Iterable[Profile], now: Iterable[Profile]
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the metrics of each profiler that saw both kernels."""
    old = {each.profiler: each for each in before}
    return [(_metrics(old[each.profiler]), _metrics(each)) for each in now if each.profiler in old]


def _metrics(profile: Profile) -> dict[str, float]:
    """Return a profile's metrics over the whole call."""
    values = {metric.name: metric.value for metric in profile.metrics}
    kernels = [{metric.name: metric.value for metric in each.metrics} for each in profile.kernels]
    if not kernels:
        return values
    longest = max(kernels, key=lambda each: each.get("duration_us", 0.0))
    for name in KERNEL_METRICS:
        if name in _SUMS and all(name in each for each in kernels):
            values.setdefault(name, sum(each[name] for each in kernels))
        elif name in longest and name not in _SUMS:
            values.setdefault(name, longest[name])
    return values


def _built(evaluation: Evaluation) -> dict[str, float]:
    """Return the most that any kernel of a build needs."""
    resources = evaluation.build.resources if evaluation.build else {}
    listed = resources.get("kernels")
    parts = [resources, *(listed if isinstance(listed, list) else [])]
    found: dict[str, float] = {}
    for metric, names in _BUILT.items():
        values = [
            float(part[name]) for part in parts if isinstance(part, dict)
            for name in names if _is_number(part.get(name))
        ]  # fmt: skip
        if values:
            found[metric] = max(values)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _factor(one: Compared) -> str:
    return "" if one.factor is None else f" x{number(one.factor)}"
