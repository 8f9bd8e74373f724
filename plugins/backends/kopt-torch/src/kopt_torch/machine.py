"""The device as PyTorch finds it."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch

from kopt.errors import DeviceError
from kopt.model.device import Device

if TYPE_CHECKING:
    from kopt.model.device import DeviceKind


def find_device(kind: DeviceKind) -> Device:
    """Return the CPU, or the current CUDA device. Raises DeviceError where there is none."""
    return _cuda() if kind == "cuda" else _cpu()


def _cuda() -> Device:
    if not torch.cuda.is_available():
        raise DeviceError(
            "device 'cuda' was asked for, but PyTorch sees no CUDA device; run `kopt doctor`, or "
            "use --device cpu"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    versions = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    with suppress(PackageNotFoundError):  # torch.compile and candidates compile with it
        versions["triton"] = version("triton")
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if driver:
        versions["driver"] = driver.splitlines()[0]
    return Device(
        kind="cuda", name=properties.name,
        architecture=f"sm_{properties.major}{properties.minor}",
        units=properties.multi_processor_count, memory_bytes=properties.total_memory,
        cache_bytes=properties.L2_cache_size, uuid=str(properties.uuid), versions=versions,
    )  # fmt: skip


def _cpu() -> Device:
    versions = {"torch": torch.__version__}
    if compiler := _output("g++", "-dumpfullversion"):
        versions["g++"] = compiler
    return Device(
        kind="cpu", name=_cpu_name(), architecture=platform.machine(), units=_usable_cpus(),
        memory_bytes=psutil.virtual_memory().total, cache_bytes=_last_level_cache(),
        versions=versions,
    )  # fmt: skip


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # no such file outside Linux
    return platform.processor() or platform.machine()


def _last_level_cache() -> int:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * scale)
    return max(sizes, default=32 << 20)


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def copy_ms(nbytes: int, device: Device) -> float:
    """Median time in ms of a copy that reads ``nbytes / 2`` and writes as much.

    Buffers rotate so that together they outgrow the last-level cache twice, memory permitting.
    """
    half = max(1, nbytes // 2)
    budget = max(2 * half, device.memory_bytes // 8)
    wanted = max(1, -(-2 * device.cache_bytes // (2 * half)))
    count = max(1, min(wanted, 8, budget // (2 * half)))
    pairs = [
        tuple(torch.ones(half, dtype=torch.uint8, device=device.kind) for _ in range(2))
        for _ in range(count)
    ]
    for source, target in pairs:
        target.copy_(source)
    timed = _cuda_copy_ms if device.kind == "cuda" else _cpu_copy_ms
    samples = [timed(*pairs[i % count]) for i in range(max(9, 3 * count))]
    return statistics.median(samples)


def _cpu_copy_ms(source: torch.Tensor, target: torch.Tensor) -> float:
    start = time.perf_counter()
    target.copy_(source)
    return (time.perf_counter() - start) * 1e3


def _cuda_copy_ms(source: torch.Tensor, target: torch.Tensor) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(200_000)
    start.record()
    target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))
