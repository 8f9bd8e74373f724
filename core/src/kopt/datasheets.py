"""What vendors say of their devices, to find measurements that cannot be right or are far too low."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import TYPE_CHECKING

from kopt.model.record import Record

if TYPE_CHECKING:
    from kopt.model.device import Peaks

_MOST, _LEAST = 1.03, 0.60
"""Of a vendor's figure: beyond them a measurement is worth a sentence."""
_RATES = {
    "bandwidth_gb_s": ("memory bandwidth", "GB/s"),
    "fp32_tflops": ("FP32 rate", "TFLOP/s"),
    "tf32_tflops": ("TF32 rate", "TFLOP/s"),
    "bf16_tflops": ("BF16 rate", "TFLOP/s"),
    "fp16_tflops": ("FP16 rate", "TFLOP/s"),
    "fp8_tflops": ("FP8 rate", "TFLOP/s"),
}


class Datasheet(Record):
    """Peak rates of a device by its vendor's document; None: not known for sure."""

    names: tuple[str, ...]
    """As the driver reports them."""
    source: str
    """The document, and which of its figures."""
    bandwidth_gb_s: float | None = None
    fp32_tflops: float | None = None
    """Without tensor cores; the others are of dense products, without sparsity."""
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None


def entries() -> tuple[Datasheet, ...]:
    """Return every entry of the table."""
    return tuple(dict.fromkeys(_table().values()))


def lookup(name: str) -> Datasheet | None:
    """Return a device's entry; None where its name is not in the table as it stands.

    Case, spaces and a leading ``NVIDIA`` (old drivers leave it out) do not matter, all else does: an
    ``NVIDIA H100 PCIe`` is no ``NVIDIA H100 80GB HBM3``.
    """
    return _table().get(_normalised(name))


def cross_check(device_name: str, peaks: Peaks) -> list[str]:
    """Return a sentence for each measured rate that is beyond the datasheet, or far below it.

    Above 103 % of the vendor's figure, or below 60 %. Empty for a device that is not in the table.
    """
    sheet = lookup(device_name)
    if sheet is None:
        return []
    found = []
    for field, (what, unit) in _RATES.items():
        measured, stated = getattr(peaks, field), getattr(sheet, field)
        if not measured or not stated:
            continue
        part = measured / stated
        if part > _MOST or part < _LEAST:
            found.append(
                f"{device_name}: the measured {what} of {measured:.4g} {unit} is {part:.0%} of the "
                f"{stated:g} {unit} in {sheet.source}: {_why(part)}"
            )
    return found


def _why(part: float) -> str:
    if part > _MOST:
        return (
            "the device runs above its rated clocks, or the measurement is wrong; measure again "
            "with `kopt doctor --measure`"
        )
    return (
        "it is throttled by power or heat, shared with other work, or set to lower clocks; look at "
        "`nvidia-smi -q -d CLOCK,POWER,PERFORMANCE` and measure again with `kopt doctor --measure`"
    )


def _normalised(name: str) -> str:
    return " ".join(name.casefold().split()).removeprefix("nvidia ")


@functools.cache
def _table() -> dict[str, Datasheet]:
    text = resources.files("kopt").joinpath("datasheets.toml").read_text(encoding="utf-8")
    sheets = [Datasheet(**entry) for entry in tomllib.loads(text)["gpu"]]
    return {_normalised(name): sheet for sheet in sheets for name in sheet.names}
