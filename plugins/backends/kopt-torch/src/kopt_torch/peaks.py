"""What a device really gives: bandwidths, rates of matrix products and the cost of a launch."""

from __future__ import annotations

import contextlib
import datetime
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kopt.model.device import Peaks
from kopt_torch import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.device import Device, DeviceKind

_SMALLEST_PRODUCT = 256
_LAUNCHES = 1000
_BLOCK = 1 << 20
"""Random values that a buffer repeats: drawing all of them would take longer than the rest."""
_GB, _TERA = 1e9, 1e12


@dataclass(frozen=True)
class Effort:
    """How much a measurement takes: the usual is below ten seconds on a GPU, fifteen on a CPU."""

    buffer_bytes: int
    """Of each of two buffers that are copied, read or written."""
    largest_product: int
    """Most rows and columns of the square matrices that are multiplied."""
    product_seconds: float
    """A product that takes longer is the largest one."""
    seconds: float
    """For the samples of one rate."""
    fewest: int = 5
    """Samples of one rate."""

    @classmethod
    def usual(cls, device: Device) -> Effort:
        """Return what suits a device: buffers outgrow its cache, products saturate it.

        Four times the last-level cache, but 1 GiB at most on a CPU: of a large shared cache a
        process has a part only, and both buffers take turns in it.
        """
        cuda = device.kind == "cuda"
        wanted = max(4 * device.cache_bytes, (1 << 30) if cuda else (256 << 20))
        buffer = min(wanted if cuda else min(wanted, 1 << 30), device.memory_bytes // 8)
        fits = int((device.memory_bytes / 8 / 12) ** 0.5)  # three float32 matrices in an eighth
        return cls(
            buffer_bytes=buffer, largest_product=min(8192 if cuda else 4096, fits),
            product_seconds=0.05 if cuda else 0.3, seconds=0.4 if cuda else 0.6,
        )  # fmt: skip


def measure(kind: DeviceKind, effort: Effort | None = None) -> Peaks:
    """Measure a device that is otherwise idle. Raises DeviceError where there is none.

    Each rate is the median of several samples. What the device or this PyTorch cannot do, or has no
    memory for, is None. Switches that are changed for it are put back.
    """
    device = machine.find_device(kind)
    effort = effort or Effort.usual(device)
    with torch.inference_mode(), _all_threads(device), _float32_precision():
        clock = _Clock(kind, effort)
        bandwidths = _bandwidths(kind, effort, clock)
        rates = _rates(kind, effort, clock)
        launch = _launch_us(effort) if kind == "cuda" else None
    return Peaks(
        **bandwidths, **rates, launch_us=launch, versions=device.versions,
        measured=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )  # fmt: skip


@contextlib.contextmanager
def _all_threads(device: Device) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(device.units if device.kind == "cpu" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _float32_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Clock:
    """Times calls: by the device's own clock on a GPU, by the wall's on a CPU."""

    def __init__(self, kind: DeviceKind, effort: Effort) -> None:
        self._sample = _cuda_seconds if kind == "cuda" else _cpu_seconds
        self._effort = effort

    def once(self, call: Callable[[], object]) -> float:
        """Return the seconds of one call, warm."""
        call()
        return self._sample(call, 1)

    def median(self, call: Callable[[], object]) -> float:
        """Return the median seconds of a call over samples of one or several each."""
        repeats = int(min(20, max(1, 0.02 / max(self.once(call), 1e-6))))
        end = time.perf_counter() + self._effort.seconds
        samples: list[float] = []
        while len(samples) < self._effort.fewest or time.perf_counter() < end:
            samples.append(self._sample(call, repeats) / repeats)
        return statistics.median(samples)


def _cuda_seconds(call: Callable[[], object], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(200_000)  # the launches are queued before the first one begins
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _cpu_seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def _bandwidths(kind: DeviceKind, effort: Effort, clock: _Clock) -> dict[str, float | None]:
    """Copy (read and written bytes), read (a sum) and write (a fill), in GB/s."""
    count = max(1, effort.buffer_bytes // 4)
    block = torch.randn(min(count, _BLOCK), device=kind)
    source = block.repeat(-(-count // len(block)))[:count]
    target = torch.empty_like(source)
    nbytes = 4 * count
    return {
        "copy_gb_s": 2 * nbytes / clock.median(lambda: target.copy_(source)) / _GB,
        "read_gb_s": nbytes / clock.median(source.sum) / _GB,
        "write_gb_s": nbytes / clock.median(lambda: target.fill_(1.5)) / _GB,
    }


def _rates(kind: DeviceKind, effort: Effort, clock: _Clock) -> dict[str, float | None]:
    """TFLOP/s of square products by type; None where the device has no units for it."""
    capability = torch.cuda.get_device_capability() if kind == "cuda" else (0, 0)
    cpu = kind == "cpu"
    kinds: dict[str, tuple[bool, str, Callable[[int], Callable[[], object]]]] = {
        "fp32_tflops": (True, "highest", lambda n: _product(n, torch.float32, kind)),
        "tf32_tflops": (capability >= (8, 0), "high", lambda n: _product(n, torch.float32, kind)),
        "bf16_tflops": (
            cpu or capability >= (8, 0), "highest", lambda n: _product(n, torch.bfloat16, kind)
        ),
        "fp16_tflops": (
            cpu or capability >= (7, 0), "highest", lambda n: _product(n, torch.float16, kind)
        ),
        "fp8_tflops": (
            capability >= (8, 9) and hasattr(torch, "_scaled_mm"), "highest", _product_float8
        ),
    }  # fmt: skip
    rates: dict[str, float | None] = {}
    for name, (able, precision, make) in kinds.items():
        torch.set_float32_matmul_precision(precision)
        rates[name] = _tflops(make, effort, clock) if able else None
    return rates


def _tflops(
    make: Callable[[int], Callable[[], object]], effort: Effort, clock: _Clock
) -> float | None:
    """Rate of the largest product that does not take too long; None where none runs."""
    extent, rate = min(_SMALLEST_PRODUCT, effort.largest_product), None
    try:
        call = make(extent)
        while (
            2 * extent <= effort.largest_product and clock.once(call) < effort.product_seconds / 8
        ):
            extent *= 2
            call = make(extent)
        rate = 2 * extent**3 / clock.median(call) / _TERA
    except RuntimeError:  # NotImplementedError and CUDA's out of memory are such
        return None  # this PyTorch has no such product for the device, or no memory for it
    return rate


def _product(extent: int, dtype: torch.dtype, kind: DeviceKind) -> Callable[[], object]:
    """Random values, as a device draws less power for zeros and then runs faster."""
    left, right = (torch.randn(extent, extent, device=kind).to(dtype) for _ in range(2))
    result = torch.empty(extent, extent, dtype=dtype, device=kind)
    return lambda: torch.mm(left, right, out=result)


def _product_float8(extent: int) -> Callable[[], object]:
    float8 = torch.float8_e4m3fn
    left, right = (torch.randn(extent, extent, device="cuda").to(float8) for _ in range(2))
    scale = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(
        left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )  # fmt: skip


def _launch_us(effort: Effort) -> float:
    """Wall-clock time of an empty kernel launched after another, in microseconds per launch."""
    samples = []
    for _ in range(effort.fewest):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_LAUNCHES):
            torch.cuda._sleep(0)  # a kernel of one thread that ends at once
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / _LAUNCHES * 1e6)
    return statistics.median(samples)
