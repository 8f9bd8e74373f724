"""Hardware counters of CUDA kernels for kopt, through NVIDIA Nsight Compute."""

from __future__ import annotations

from kopt_ncu.profiler import Ncu
from kopt_ncu.report import read

__all__ = ["Ncu", "read"]
