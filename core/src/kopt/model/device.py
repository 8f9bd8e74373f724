"""The machine that runs and times kernels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kopt.model.record import Record

DeviceKind = Literal["cpu", "cuda"]


class Peaks(Record):
    """What was measured of a device once (``kopt doctor --measure``); None: not measured, or cannot be."""

    copy_gb_s: float | None = None
    """Read plus written bytes of a large copy."""
    read_gb_s: float | None = None
    write_gb_s: float | None = None
    fp32_tflops: float | None = None
    """Of a large matrix product in float32, no TF32; likewise below."""
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    launch_us: float | None = None
    """One empty kernel launch after another, per launch."""
    measured: str = ""
    """When, as 2026-11-28."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Driver and framework by name, as they were then."""

    @property
    def bandwidth_gb_s(self) -> float | None:
        """The most that memory was seen to give: what a bound on time divides by."""
        known = [rate for rate in (self.copy_gb_s, self.read_gb_s, self.write_gb_s) if rate]
        return max(known, default=None)


class Clocks(Record):
    """A GPU's clocks as its driver told them right after something was timed; None: it did not."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    most_sm_mhz: int | None = None
    """What the multiprocessors' clock may be at most."""
    celsius: int | None = None
    watts: float | None = None


class Device(Record):
    """A device as found, with what was measured on it; nothing is taken from a table of names."""

    kind: DeviceKind
    name: str
    architecture: str
    """``sm_90`` for a GPU, ``x86_64`` or ``arm64`` for a CPU."""
    units: int
    """Streaming multiprocessors, or CPUs this process may use."""
    memory_bytes: int
    cache_bytes: int
    """Last-level cache: L2 of a GPU, L3 of a CPU."""
    uuid: str = ""
    copy_bandwidth_gb_s: float | None = None
    """Read plus written bytes of a copy, measured in this session: of as many as the first workload's
    compulsory ones, where a problem was opened."""
    peaks: Peaks | None = None
    """None: never measured here."""
    clocks: Clocks | None = None
    """When the baselines had been timed; None: a CPU, or nothing was."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Driver, frameworks and compilers, by name."""

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal for two timings to be comparable."""
        return {"device": self.name, "architecture": self.architecture, **self.versions}

    def copy_ms(self, nbytes: int) -> float | None:
        """Return how long a plain copy takes that reads and writes ``nbytes`` in all, at the rate of
        ``copy_bandwidth_gb_s``; None where that is not known."""
        return nbytes / self.copy_bandwidth_gb_s / 1e6 if self.copy_bandwidth_gb_s else None


class Target(Record):
    """What a strategy writes for."""

    language: str
    """``cpp``, ``triton``, ``cuda`` or ``torch``."""
    beside: tuple[str, ...] = ()
    """Languages that the run builds too: for a strategy that knows a better kernel in one of them."""
    device: Device
