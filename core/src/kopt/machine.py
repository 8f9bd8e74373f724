"""What a session finds out about its machine without importing a framework."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import psutil

from kopt.errors import DeviceError
from kopt.model.device import DeviceKind

_CPU_MEMORY_SHARE = 0.6


@cache
def gpu_names() -> tuple[str, ...]:
    """Return the names of the NVIDIA GPUs that nvidia-smi lists; empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ()
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.strip().splitlines()) if done.returncode == 0 else ()


def choose_device(asked: DeviceKind | None) -> DeviceKind:
    """Return the device of a run. Raises DeviceError where a GPU was asked for and none is there."""
    if asked == "cuda" and not gpu_names():
        raise DeviceError(
            "--device cuda: no NVIDIA GPU is visible here (nvidia-smi lists none); run "
            "`kopt doctor`, or use --device cpu"
        )
    return asked or ("cuda" if gpu_names() else "cpu")


def usable_cpus() -> int:
    """Return how many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def candidate_memory_limit(device: DeviceKind) -> int:
    """Return the cap on a candidate process's private memory in bytes (0 with CUDA: no cap).

    A CUDA context maps more address space than the machine has memory, so that a cap would stop
    every candidate.
    """
    if device == "cuda":
        return 0
    return int(psutil.virtual_memory().total * _CPU_MEMORY_SHARE)
