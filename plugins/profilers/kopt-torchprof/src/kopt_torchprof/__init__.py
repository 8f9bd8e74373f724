"""The profiler torchprof of kopt: names, times and launches of a call's kernels, without root."""

from __future__ import annotations

from kopt_torchprof.plugin import TorchProf

__all__ = ["TorchProf"]
