"""How profiles and diagnoses look on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kopt.cli.output import plain_table, put
from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from kopt.insight import Profiled
    from kopt.model.diagnosis import Diagnosis, Finding, KernelProfile, Metric, Profile

_MOST_KERNELS = 8
_LIMITED = (
    "duration_us", "share_percent", "grid_blocks", "block_threads", "waves",
    "registers_per_thread", "shared_bytes", "spill_bytes", "theoretical_occupancy_percent",
    "achieved_occupancy_percent", "sm_busy_percent", "dram_busy_percent", "l2_busy_percent",
    "dram_bytes", "dram_gb_s", "l2_hit_percent", "load_sectors_per_request",
    "store_sectors_per_request", "shared_conflict_percent", "pipe_tensor_percent",
    "pipe_fma_percent", "static_widest_global_bytes", "static_tensor_instructions",
    "static_vector_bits", "static_vector_instructions", "static_scalar_float_instructions",
)  # fmt: skip
"""What is shown of a kernel without --all."""


def put_profiled(found: Profiled, *, everything: bool) -> None:
    """Print what was found out about one kernel: metrics, position, diagnosis."""
    evaluation = found.evaluation
    looked = (
        " at the depth of a search; `kopt verify` looks at more" if not evaluation.detail else ""
    )
    put(f"on {escape(found.device.name)}: {evaluation.status}{looked}")
    if evaluation.detail:
        put(escape(evaluation.detail))
    for profile in found.profiles:
        put("")
        put_profile(profile, everything=everything)
    for reason in found.left_out:
        put(f"left out: {escape(reason)}")
    for diagnosis in found.diagnoses:
        put("")
        put_diagnosis(diagnosis)
    if found.profiles and not found.diagnoses:
        put("", "no judge had an opinion; `pip install kopt-roofline` has one")


def put_profile(profile: Profile, *, everything: bool) -> None:
    """Print one profiler's metrics, call first, then each kernel in a column of its own."""
    put(f"[bold]{escape(profile.profiler)}[/]")
    for note in profile.notes:
        put(f"  note: {escape(note)}")
    if profile.metrics:
        put(_call_table(profile.metrics))
    if profile.kernels:
        shown = profile.kernels[:_MOST_KERNELS]
        put(_kernel_table(shown, everything=everything))
        if len(profile.kernels) > len(shown):
            put(f"  and {len(profile.kernels) - len(shown)} kernels more (--json has them)")


def _call_table(metrics: Iterable[Metric]) -> Table:
    table = plain_table("CALL", "VALUE>", "UNIT", "MEANING")
    for metric in metrics:
        meaning = CALL_METRICS[metric.name].meaning if metric.name in CALL_METRICS else ""
        table.add_row(metric.name, number(metric.value), metric.unit, meaning)
    return table


def _kernel_table(kernels: Sequence[KernelProfile], *, everything: bool) -> Table:
    table = plain_table("KERNEL", *(f"{escape(_short(each.name))}>" for each in kernels), "UNIT")
    values = [{metric.name: metric.value for metric in each.metrics} for each in kernels]
    names = [name for name in KERNEL_METRICS if any(name in each for each in values)]
    for name in names:
        if everything or name in _LIMITED or name.startswith("stall_"):
            cells = [number(each[name]) if name in each else "" for each in values]
            if everything or not name.startswith("stall_") or _tells(name, values):
                table.add_row(name, *cells, KERNEL_METRICS[name].unit)
    for name in sorted({name for each in kernels for name in each.raw}) if everything else ():
        cells = [_raw(each.raw.get(name)) for each in kernels]
        table.add_row(escape(name), *cells, "")
    return table


def _tells(name: str, values: list[dict[str, float]]) -> bool:
    """Whether a stall is a tenth of some kernel's time or more."""
    return any(each.get(name, 0.0) >= 10.0 for each in values)


def _raw(value: float | str | None) -> str:
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) else number(value)


def put_diagnosis(diagnosis: Diagnosis) -> None:
    """Print what a judge says, the costliest finding first."""
    room = f", up to {diagnosis.headroom:.2f}x faster" if diagnosis.headroom else ""
    put(f"[bold]{escape(diagnosis.judge)}: {escape(diagnosis.bottleneck)}[/]{room}")
    if not diagnosis.findings:
        for line in (*diagnosis.evidence, *diagnosis.advice):
            put(f"  {escape(line)}")
    for finding in diagnosis.findings:
        _put_finding(finding)
    if diagnosis.missing:
        put(f"  not asked for lack of: {escape(', '.join(diagnosis.missing))}")


def _put_finding(finding: Finding) -> None:
    where = f" in {escape(_short(finding.kernel))}" if finding.kernel else ""
    gain = f", about {finding.gain:.2f}x" if finding.gain else ""
    put(f"  [bold]{escape(finding.bottleneck)}[/]{where}{gain}")
    put(f"    {escape(finding.explanation)}")
    for line in finding.evidence:
        put(f"    - {escape(line)}")
    if finding.moves:
        put(f"    try: {escape(', '.join(finding.moves))}")
    if finding.risk:
        put(f"    risk: {escape(finding.risk)}")


def _short(name: str) -> str:
    plain = name.split("(")[0].split("<")[0].strip() or name
    return plain if len(plain) <= 28 else f"{plain[:25]}..."


def number(value: float) -> str:
    """Return a figure with as many digits as it has to say."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
