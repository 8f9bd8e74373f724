"""Measures a device's rates in a process of its own (``python -m``) and prints the device as JSON."""

from __future__ import annotations

import sys

from kopt.errors import KoptError
from kopt.hooks import Hooks
from kopt.worker.device_lock import DeviceLock, default_locks, device_of_lock


def main(kind: str, backend: str) -> int:
    """Return the exit code: 0 with the device on stdout, 1 with the reason on stderr."""
    hooks = Hooks.load([("backend", backend, {})])
    lock = DeviceLock(default_locks(), device_of_lock("cuda" if kind == "cuda" else "cpu"))
    try:
        with lock.exclusive():
            device = hooks.kopt_measure_device(kind)
    except KoptError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if device is None:
        said = [f"{failure.plugin}: {failure.error}" for failure in hooks.failures]
        sys.stderr.write("; ".join(said) or f"backend {backend} measures no device {kind}")
        return 1
    sys.stdout.write(device.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
