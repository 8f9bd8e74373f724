"""What ``perf stat -x`` prints, read: the count of each event, and the events that have none."""

from __future__ import annotations

from typing import NamedTuple

SEPARATOR = ";"
EVENTS = {
    "task-clock": "cpu_task_us",
    "cycles": "cpu_cycles",
    "instructions": "cpu_instructions",
    "cache-misses": "cache_misses",
    "branch-misses": "branch_misses",
    "page-faults": "page_faults",
    "context-switches": "context_switches",
}
"""Event of perf to metric of kopt."""
_TO_US = {"nsec": 1e-3, "ns": 1e-3, "usec": 1.0, "msec": 1e3, "sec": 1e6}


class Counted(NamedTuple):
    """What one run of perf counted."""

    values: dict[str, float]
    """By kopt's names; only what was counted."""
    missing: tuple[str, ...]
    """Events without a count, as perf puts it: ``cycles (not supported)``."""
    user_only: bool
    """Whether perf was not allowed to count what the kernel did."""


def command(output: str) -> tuple[str, ...]:
    """Return the command that counts a program's events into a file."""
    return ("perf", "stat", "-x", SEPARATOR, "-e", ",".join(EVENTS), "-o", output, "--")


def read(text: str) -> Counted:
    """Read one file. On a CPU with cores of several kinds an event has a line for each: their sum.

    Source: perf-stat(1), "CSV FORMAT": value, unit, event, run time, part of it that was counted.
    """
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    user_only = False
    for line in text.splitlines():
        fields = line.split(SEPARATOR)
        event, modifiers = _event(fields[2]) if len(fields) >= 3 else ("", "")
        if event not in EVENTS:
            continue
        user_only = user_only or ("u" in modifiers and "k" not in modifiers)
        count = _number(fields[0])
        if count is None:
            missing[event] = fields[0].strip("<> ")
            continue
        metric = EVENTS[event]
        values[metric] = values.get(metric, 0.0) + count * _TO_US.get(fields[1], 1.0)
    absent = [f"{event} ({why})" for event, why in missing.items() if EVENTS[event] not in values]
    return Counted(values, tuple(absent), user_only)


def _event(text: str) -> tuple[str, str]:
    """Return an event's plain name and its modifiers: ``cpu_core/cycles/u`` is cycles, u."""
    if "/" in text:
        _, name, modifiers = [*text.split("/"), ""][:3]
        return name, modifiers.lstrip(":")
    name, _, modifiers = text.partition(":")
    return name, modifiers


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # <not counted>, <not supported>
        return None
