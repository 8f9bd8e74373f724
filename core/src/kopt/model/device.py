"""The machine that runs and times kernels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kopt.model.record import Record

DeviceKind = Literal["cpu", "cuda"]


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
    """Read plus written bytes of a large copy, measured in this session."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Driver, frameworks and compilers, by name."""

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal for two timings to be comparable."""
        return {"device": self.name, "architecture": self.architecture, **self.versions}


class Target(Record):
    """What a strategy writes for."""

    language: str
    """``cpp``, ``triton``, ``cuda`` or ``torch``."""
    device: Device
