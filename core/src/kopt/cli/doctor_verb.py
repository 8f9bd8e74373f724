"""``kopt doctor``: whether this machine has what kopt needs, and how to get the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kopt.cli.options import AsJson, DeviceName, Verb, settings_of

if TYPE_CHECKING:
    from kopt.model.device import Device


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", cls=Verb)(doctor)


Measure = Annotated[
    bool,
    typer.Option("--measure", help="Measure the device's bandwidths and rates, and keep them."),
]


def doctor(measure: Measure = False, device: DeviceName = None, as_json: AsJson = False) -> int:
    """Check Python, compilers, frameworks, GPU, profiler permission, LLM endpoint and plugins.

    Exits 1 where something that is needed is missing. Each red row has its fix. With --measure
    the device is measured instead, once: bounds and diagnoses are in terms of these rates.
    """
    if measure:
        return _measure(device, as_json=as_json)
    from kopt.cli.output import plain_table, print_json, put
    from kopt.doctor import examine

    checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": [check.to_json() for check in checks]})
    else:
        from rich.markup import escape

        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        table = plain_table("CHECK", "STATE", "DETAIL", "FIX")
        for check in checks:
            state = f"[{colours[check.state]}]{check.state}[/]"
            table.add_row(escape(check.name), state, escape(check.detail), escape(check.fix))
        put(table)
    return 1 if any(check.state == "fail" for check in checks) else 0


def _measure(device: str | None, *, as_json: bool) -> int:
    settings = settings_of({"device": device})
    from kopt.cli.output import print_json
    from kopt.datasheets import cross_check, lookup
    from kopt.machine import choose_device
    from kopt.peaks import measure_peaks

    found = measure_peaks(choose_device(settings.device))
    assert found.peaks is not None, "measure_peaks raises where nothing was measured"
    doubts = cross_check(found.name, found.peaks)
    if as_json:
        print_json({"schema": 1, "device": found.to_json(), "doubts": doubts})
        return 0
    sheet = lookup(found.name)
    _put_peaks(found, sheet, doubts)
    return 0


def _put_peaks(device: Device, sheet: object, doubts: list[str]) -> None:
    from rich.markup import escape

    from kopt.cli.output import plain_table, put
    from kopt.model.device import Peaks

    table = plain_table("RATE", "MEASURED>", "DATASHEET>", "UNIT")
    units = {"gb_s": "GB/s", "tflops": "TFLOP/s", "us": "us"}
    for name in Peaks.model_fields:
        value = getattr(device.peaks, name)
        unit = next((said for end, said in units.items() if name.endswith(end)), None)
        if unit is not None:
            label = name.rsplit("_", 2 if name.endswith("gb_s") else 1)[0]
            listed = getattr(sheet, "bandwidth_gb_s" if unit == "GB/s" else name, None)
            table.add_row(label, _figure(value), _figure(listed), unit)
    cache = f"{device.cache_bytes / 1e6:.1f} MB of {'L2' if device.kind == 'cuda' else 'L3'}"
    put(f"{escape(device.name)}, {device.units} units, {cache}", table)
    for doubt in doubts:
        put(f"doubtful: {escape(doubt)}")


def _figure(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
