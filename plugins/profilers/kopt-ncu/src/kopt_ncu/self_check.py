"""Does ncu count right here? A copy of known bytes is profiled and compared with what it must be.

``python -m kopt_ncu.self_check`` exits with 0 where it does, 1 where it does not, and 5 where
nothing can be profiled on this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import DeviceError, ExitCode
from kopt.machine import gpu_names
from kopt.model.probe import UnderTool
from kopt_ncu.collecting import collect
from kopt_ncu.copy_kernel import BYTES_PER_THREAD, NAME, THREADS
from kopt_ncu.metrics import metric
from kopt_ncu.settings import NcuOptions
from kopt_ncu.tool import INSTALL, find_ncu

if TYPE_CHECKING:
    from kopt.model.diagnosis import KernelProfile

SIZE = 256 << 20
"""Bytes that are copied: several times the L2 cache of any GPU of today."""
_WARP = 32
_SECTOR = 32
_TOLERANCE = 0.05
_LARGEST_CACHE = 128 << 20
_OUTPUT_CHARACTERS = 4000


class Row(NamedTuple):
    """One metric of the copy: what was measured, and between what it has to be."""

    metric: str
    measured: float | None
    low: float
    high: float

    @property
    def right(self) -> bool:
        """Whether it was measured, and lies in between."""
        return self.measured is not None and self.low <= self.measured <= self.high


def self_check(options: NcuOptions | None = None) -> list[Row]:
    """Profile a copy of ``SIZE`` bytes; return each metric that is known beforehand.

    Raises DeviceError where there is no GPU, no ncu, or ncu could not profile, with its reason.
    """
    chosen = options or NcuOptions()
    if not gpu_names():
        raise DeviceError(
            "no NVIDIA GPU here (nvidia-smi lists none); run this on a machine with one"
        )
    ncu = find_ncu(chosen.ncu)
    if ncu is None:
        raise DeviceError(f"ncu is not here; {INSTALL}")

    def under(command: tuple[str, ...]) -> UnderTool:
        program = (sys.executable, "-m", "kopt_ncu.copy_kernel", str(SIZE))
        return run((*command, *program), chosen.timeout_seconds)

    collected = collect(ncu, chosen, under, "self-check")
    if not collected.kernels:
        raise DeviceError("; ".join(collected.notes))
    return compare(collected.kernels)


def compare(kernels: Sequence[KernelProfile], size: int = SIZE) -> list[Row]:
    """Return what the profile of a copy of ``size`` bytes says beside what it must say."""
    kernel = next((each for each in kernels if NAME in each.name), kernels[0])
    cache = kernel.raw.get("device__attribute_l2_cache_size", float(_LARGEST_CACHE))
    # What a write leaves in the L2 cache reaches DRAM after the kernel.
    held = cache if isinstance(cache, float) else float(_LARGEST_CACHE)
    threads = size // BYTES_PER_THREAD
    per_request = float(_WARP * BYTES_PER_THREAD // _SECTOR)
    exactly = {
        "grid_blocks": threads / THREADS, "block_threads": float(THREADS),
        "global_load_bytes": float(size), "global_store_bytes": float(size),
        "load_requests": threads / _WARP, "store_requests": threads / _WARP,
        "load_sectors_per_request": per_request, "store_sectors_per_request": per_request,
        "load_sector_use_percent": 100.0,
    }  # fmt: skip
    between = {
        "dram_read_bytes": (size * (1 - _TOLERANCE), size * (1 + _TOLERANCE)),
        "dram_write_bytes": (size * (1 - _TOLERANCE) - held, size * (1 + _TOLERANCE)),
    }
    rows = [(name, value * 0.999, value * 1.001) for name, value in exactly.items()]
    rows += [(name, low, high) for name, (low, high) in between.items()]
    return [Row(name, metric(kernel, name), low, high) for name, low, high in rows]


def run(command: Sequence[str], seconds: float) -> UnderTool:
    """Run a command in a process group of its own, which is killed after ``seconds``."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        return UnderTool(fault=f"{command[0]} did not start: {error}", seconds=0.0)
    fault = ""
    with process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            fault = f"not done after {seconds:g} s"
    if process.returncode and not fault:
        fault = f"exit {process.returncode}"
    said = output.decode("utf-8", "replace")[-_OUTPUT_CHARACTERS:]
    return UnderTool(fault=fault, output=said, seconds=time.monotonic() - start)


def main() -> int:
    """Print the comparison; return the exit code."""
    try:
        rows = self_check()
    except DeviceError as error:
        sys.stderr.write(f"self-check of kopt-ncu: {error}\n")
        return ExitCode.NO_DEVICE
    sys.stdout.write(table(rows))
    return ExitCode.IMPROVED if all(row.right for row in rows) else ExitCode.NOT_IMPROVED


def table(rows: Sequence[Row]) -> str:
    """Return the comparison as text, one metric a line."""
    lines = [f"{'metric':28}{'measured':>18}{'at least':>18}{'at most':>18}"]
    for row in rows:
        measured = "n/a" if row.measured is None else f"{row.measured:,.1f}"
        mark = "" if row.right else "  WRONG"
        lines.append(f"{row.metric:28}{measured:>18}{row.low:>18,.1f}{row.high:>18,.1f}{mark}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
