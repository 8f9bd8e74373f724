"""Reading what ``ncu --csv --page raw`` prints: one row a launch, one column a metric."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence

from kopt.errors import PluginError
from kopt.model.diagnosis import KernelProfile
from kopt_ncu.metrics import Raw, kernel_of

NAME = "Kernel Name"
_FIRST = '"ID"'
_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d*)?([eE][-+]?\d+)?|[-+]?\.\d+")
_NOTHING = frozenset({"", "n/a", "nan", "-nan", "inf", "-inf", "no data"})
_ABOUT_THE_LAUNCH = frozenset({
    "ID", "Process ID", "Process Name", "Host Name", NAME, "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Thread Domain",
})  # fmt: skip
_CONSTANTS = "device__attribute_"
_KEPT_CONSTANTS = frozenset(
    f"{_CONSTANTS}{name}" for name in ("multiprocessor_count", "l2_cache_size", "display_name")
)
_SCALES = {
    "Kbyte": ("byte", 1e3), "Mbyte": ("byte", 1e6), "Gbyte": ("byte", 1e9), "Tbyte": ("byte", 1e12),
    "us": ("ns", 1e3), "usecond": ("ns", 1e3), "ms": ("ns", 1e6), "msecond": ("ns", 1e6),
    "s": ("ns", 1e9), "second": ("ns", 1e9), "nsecond": ("ns", 1.0),
    "Khz": ("hz", 1e3), "Mhz": ("hz", 1e6), "Ghz": ("hz", 1e9),
}  # fmt: skip
"""Nsight's units that are multiples of others: the base unit, and how many of it."""


def looks_like_pages(text: str) -> bool:
    """Say whether a text is a CSV of ncu, with or without its messages before it."""
    return any(line.startswith(_FIRST) and f'"{NAME}"' in line for line in text.splitlines())


def read_pages(text: str) -> tuple[KernelProfile, ...]:
    """Return the launches of ncu's raw page in CSV, in the order of the file.

    Lines before the header are the tool's messages and skipped. Values come in base units,
    whatever ``--print-units`` was. Raises PluginError where there is no such page.
    """
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if line.startswith(_FIRST)), None)
    if start is None:
        raise PluginError(
            "no CSV of Nsight Compute in it: no line begins with "
            f"{_FIRST}; make one with: ncu --import REPORT --csv --page raw --print-units base"
        )
    try:
        rows = list(csv.reader(lines[start:]))
    except csv.Error as error:
        raise PluginError(f"the CSV of Nsight Compute is damaged: {error}; make it anew") from error
    header = rows[0]
    if "Metric Name" in header:
        raise PluginError(
            "it is another page of Nsight Compute's CSV, with one metric a line; "
            "make it with: ncu --import REPORT --csv --page raw --print-units base"
        )
    return tuple(_kernels(header, rows[1:]))


def number(text: str) -> float | str | None:
    """Return what one cell says: a number, a text, or None where ncu has no value for it."""
    value = text.strip().removeprefix("(!)").strip()
    if value.lower() in _NOTHING:
        return None
    return float(value.replace(",", "")) if _NUMBER.fullmatch(value) else value


def is_kept(name: str) -> bool:
    """Say whether a metric is of the launch: no list of names, none of the device's many constants."""
    return ":" not in name and (not name.startswith(_CONSTANTS) or name in _KEPT_CONSTANTS)


def in_base_unit(value: float, unit: str) -> float:
    """Return a value with unit ``unit``, as ``Mbyte/s``, in Nsight's base units."""
    above, slash, below = unit.partition("/")
    scaled = value * _SCALES.get(above, ("", 1.0))[1]
    return scaled / _SCALES.get(below, ("", 1.0))[1] if slash and below != "s" else scaled


def _kernels(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[KernelProfile]:
    units: Sequence[str] = [""] * len(header)
    name_at = header.index(NAME) if NAME in header else None
    for row in rows:
        if len(row) != len(header):
            continue  # a message of the tool, or a line that was cut off
        if not row[0].strip():
            units = row
            continue
        name = row[name_at] if name_at is not None else "?"
        yield kernel_of(name, _raw(header, units, row))


def _raw(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> Raw:
    raw: Raw = {}
    for name, unit, cell in zip(header, units, row, strict=True):
        if name in _ABOUT_THE_LAUNCH or not is_kept(name):
            continue
        value = number(cell)
        if isinstance(value, float):
            value = in_base_unit(value, unit)
            value = value if math.isfinite(value) else None
        if value is not None:
            raw[name] = value
    return raw
