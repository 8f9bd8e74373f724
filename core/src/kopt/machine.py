"""What a session finds out about its machine without importing a framework."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

import psutil

from kopt.env import visible_gpu
from kopt.errors import ConfigError, DeviceError
from kopt.model.device import Clocks, DeviceKind

CPU_LANGUAGES = frozenset({"cpp"})
GPU_LANGUAGES = frozenset({"triton", "cuda"})
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


def gpu_capability() -> str | None:
    """Return the compute capability of the first GPU, as ``9.0``; None where none is here."""
    return _of_first_gpu("compute_cap")


def gpu_uuid() -> str:
    """Return the driver's id of the first GPU that CUDA sees, without its prefix; empty: none."""
    return (_of_first_gpu("uuid") or "").removeprefix("GPU-")


def _of_first_gpu(field: str) -> str | None:
    words = _nvidia_smi(field).split() if gpu_names() else []
    return words[0] if words else None


def _nvidia_smi(fields: str) -> str:
    """Return the line of the first GPU that CUDA sees; empty where it cannot be asked for."""
    chosen = visible_gpu()
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits",
         *(["-i", chosen] if chosen else [])],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    return lines[0] if done.returncode == 0 and lines else ""


def gpu_clocks() -> Clocks | None:
    """Return the clocks, temperature and power of the first GPU that CUDA sees; None: not known."""
    if not gpu_names():
        return None
    try:
        told = _nvidia_smi("clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw")
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = [_number(each) for each in told.split(",")]
    if len(numbers) != 5 or not any(numbers):
        return None
    sm, memory, most, celsius = (None if n is None else round(n) for n in numbers[:4])
    return Clocks(
        sm_mhz=sm, memory_mhz=memory, most_sm_mhz=most, celsius=celsius, watts=numbers[4]
    )  # fmt: skip


def _number(told: str) -> float | None:
    try:
        return float(told)
    except ValueError:  # "[N/A]"
        return None


def choose_device(asked: DeviceKind | None, languages: Sequence[str] = ()) -> DeviceKind:
    """Return the device of a run: as asked, where its languages run, or the best that is here.

    Raises DeviceError where a GPU was asked for and none is there, ConfigError where a language
    runs on the other kind of device, or where two languages need two kinds.
    """
    for_cpu = [language for language in languages if language in CPU_LANGUAGES]
    for_gpu = [language for language in languages if language in GPU_LANGUAGES]
    if for_cpu and for_gpu:
        raise ConfigError(
            f"{for_cpu[0]} runs on the CPU and {for_gpu[0]} on a GPU: their times cannot be "
            "compared; take them one at a time"
        )
    if asked == "cuda" and for_cpu:
        raise ConfigError(
            f"{for_cpu[0]} runs on the CPU, not on device cuda; use --device cpu, or another backend"
        )
    if asked == "cuda" and not gpu_names():
        raise DeviceError(
            "device cuda: no NVIDIA GPU is visible here (nvidia-smi lists none); `kopt doctor` "
            "says more; without one use --device cpu"
        )
    if asked is None and for_cpu:
        return "cpu"
    return asked or ("cuda" if gpu_names() else "cpu")


def refuse_untimeable(language: str, device: DeviceKind) -> None:
    """Raise DeviceError for a GPU language without a GPU: an interpreter's time is no time."""
    if device == "cpu" and language == "cuda":
        raise DeviceError(
            "cuda kernels run on an NVIDIA GPU only. Here `kopt verify PROBLEM KERNEL --target "
            "sm_90` compiles one and shows its registers and spills, and `kopt optimize --backend "
            "cpp` works on the CPU"
        )
    if device == "cpu" and language in GPU_LANGUAGES:
        raise DeviceError(
            f"{language} kernels cannot be timed without a GPU: an interpreter's time says nothing. "
            "Here `kopt verify PROBLEM KERNEL` checks one's correctness (--target sm_90 also shows "
            "its registers and spills), and `kopt optimize --backend cpp` works on the CPU"
        )


def usable_cpus() -> int:
    """Return how many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes(device: DeviceKind) -> int:
    """Return how much memory the first GPU that CUDA sees, or this machine, has; 0: not known."""
    if device == "cpu":
        return int(psutil.virtual_memory().total)
    told = _of_first_gpu("memory.total") or ""  # in MiB; "[N/A]" where it is the machine's own
    return int(told) << 20 if told.isdecimal() else 0


def candidate_memory_limit(device: DeviceKind) -> int:
    """Return the cap on a candidate process's private memory in bytes (0 with CUDA: no cap).

    A CUDA context maps more address space than the machine has memory, so that a cap would stop
    every candidate.
    """
    if device == "cuda":
        return 0
    return int(psutil.virtual_memory().total * _CPU_MEMORY_SHARE)
