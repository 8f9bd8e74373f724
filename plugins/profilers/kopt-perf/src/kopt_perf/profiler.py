"""The plugin: counts a call's events as the difference between many calls and few."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

import kopt
from kopt.model.check import Check
from kopt.model.diagnosis import Profile, metrics_of
from kopt_perf.counting import command, read

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.model.evaluation import Evaluation
    from kopt.model.probe import Probe
    from kopt_perf.counting import Counted

_NAME = "perf"
_FEW = 1
_MOST_CALLS = 100_000
_TIMES_NOISE = 3.0
"""A difference counts where it is this many times that between two runs of few calls ..."""
_PART_OF_START = 0.1
"""... and this part of what the start of the process takes: two runs may agree by chance."""
_INSTALL = "install it, as with `apt install linux-perf` or linux-tools-$(uname -r)"
_ALLOW = "allow it with `sysctl kernel.perf_event_paranoid=1`"
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_NO_USERS = 3
"""From this value on (a patch of Debian and Ubuntu) only root may count anything."""


class Perf:
    """Cycles, instructions, misses, faults and CPU time of a call, as far as perf counts them."""

    class Options(kopt.Options):
        """Options of the perf profiler."""

        seconds: float = Field(default=2.0, gt=0)
        """How long the many calls take together."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether perf is there and may count."""
        path = shutil.which("perf")
        if path is None:
            return [Check(name="perf", state="warn", detail="no perf on PATH", fix=_INSTALL)]
        level = _paranoia()
        if level is not None and level >= _NO_USERS:
            detail = f"perf_event_paranoid is {level}: only root may count"
            return [Check(name="perf", state="warn", detail=detail, fix=_ALLOW)]
        return [Check(name="perf", state="ok", detail=path)]

    @kopt.hookimpl
    def kopt_profile(self, evaluation: Evaluation, device: Device, probe: Probe) -> Profile | None:
        """Return the counts of one call; None on a GPU, or where nothing was measured."""
        if device.kind != "cpu" or evaluation.measurement is None:
            return None
        if shutil.which("perf") is None:
            return _profile(evaluation, {}, [f"no perf on PATH: {_INSTALL}"])
        calls = _FEW + _calls(self.options.seconds, evaluation.measurement.latency_ms)
        runs: list[Counted] = []
        for number in (_FEW, _FEW, calls):
            counted = _run(probe, number, self.options.seconds)
            if isinstance(counted, str):
                return _profile(evaluation, {}, [counted])
            runs.append(counted)
        values, notes = _difference(runs[0], runs[1], runs[2], calls - _FEW)
        return _profile(evaluation, values, notes)


def _profile(evaluation: Evaluation, values: dict[str, float], notes: list[str]) -> Profile:
    return Profile(
        profiler=_NAME, candidate=evaluation.id, metrics=metrics_of(values), notes=tuple(notes)
    )


def _calls(seconds: float, latency_ms: float) -> int:
    return max(1, min(_MOST_CALLS, math.ceil(1e3 * seconds / latency_ms)))


def _paranoia() -> int | None:
    try:
        return int(_PARANOID.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not Linux


def _run(probe: Probe, calls: int, seconds: float) -> Counted | str:
    """Return what perf counted of a process with so many calls, or why it did not."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "counts"
        done = probe.under(command(str(output)), calls=calls, seconds=60.0 + 10 * seconds)
        counted = read(output.read_text(encoding="utf-8")) if output.exists() else None
    if done.fault:
        said = " ".join(done.output.split())[-300:]
        hint = f"; {_ALLOW}" if "perf_event_paranoid" in done.output else ""
        return f"perf counted nothing: {done.fault}{': ' if said else ''}{said}{hint}"
    if counted is None or not counted.values:
        return "perf counted nothing and did not say why: try `perf stat true`"
    return counted


def _difference(
    few: Counted, again: Counted, many: Counted, calls: int
) -> tuple[dict[str, float], list[str]]:
    """Return the counts of one call, and notes; the process's own start cancels out."""
    values, lost = {}, []
    for name in few.values.keys() & again.values.keys() & many.values.keys():
        first, second = few.values[name], again.values[name]
        start = (first + second) / 2
        difference = many.values[name] - start
        least = max(_TIMES_NOISE * abs(first - second), _PART_OF_START * start)
        if difference > least or not (start or difference):
            values[name] = difference / calls
        else:
            lost.append(name)
    if values.get("cpu_cycles") and "cpu_instructions" in values:
        values["cpu_instructions_per_cycle"] = values["cpu_instructions"] / values["cpu_cycles"]
    notes = [f"perf does not count {', '.join(many.missing)} here"] if many.missing else []
    if many.user_only:
        notes.append(f"without what the kernel does for the calls: {_ALLOW}")
    if lost:
        notes.append(
            f"{', '.join(sorted(lost))}: {calls} calls do not stand out from the start of their "
            "process; raise the option perf.seconds"
        )
    return values, notes
