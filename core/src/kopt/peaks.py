"""What was measured of the devices here: measured once in a process of its own, and kept."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from kopt.env import cache_folder, judge_environment
from kopt.errors import DeviceError
from kopt.model.device import Device, DeviceKind, Peaks
from kopt.runs.files import write_atomically

_SECONDS = 300.0


def known_peaks(device: Device) -> Peaks | None:
    """Return what was measured of this device with this driver and framework; None: nothing yet."""
    try:
        peaks = Peaks.model_validate_json(_path(device).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return peaks


def measure_peaks(kind: DeviceKind, backend: str = "torch") -> Device:
    """Measure a device's rates and keep them; return it with its peaks. Raises DeviceError.

    Takes up to half a minute. Nothing else should run on the device meanwhile: kopt's own
    measurements wait.
    """
    command = [sys.executable, "-P", "-m", "kopt.worker.device_probe", kind, backend]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False,
            env=judge_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DeviceError(
            f"measuring device {kind} took more than {_SECONDS:g} s; is it busy? Try again when "
            "nothing else runs on it"
        ) from None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise DeviceError(f"device {kind} was not measured: {_last(done.stderr)}")
    device = Device.model_validate(json.loads(lines[-1]))
    if device.peaks is None:
        raise DeviceError(f"device {kind}: backend {backend} measured nothing of it")
    path = _path(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, device.peaks.model_dump_json(indent=1).encode())
    return device


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["its process said nothing"])[-1][:500]


def _path(device: Device) -> Path:
    """Return where a device's peaks are kept: another driver or framework has others."""
    told = json.dumps([device.identity, device.uuid, device.units], sort_keys=True)
    name = hashlib.sha256(told.encode()).hexdigest()[:16]
    return cache_folder() / "devices" / f"{name}.json"
