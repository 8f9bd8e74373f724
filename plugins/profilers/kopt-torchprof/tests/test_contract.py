"""torchprof keeps the contract of profilers."""

from __future__ import annotations

from kopt.testing import ProfilerContract
from kopt_torchprof import TorchProf


class TestTorchProf(ProfilerContract):
    def plugin(self) -> TorchProf:
        return TorchProf(TorchProf.Options(calls=3))
