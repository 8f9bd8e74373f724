"""The profiler: one call of a candidate under Nsight Compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kopt
from kopt.model.verification import Status
from kopt_ncu.checks import machine_checks
from kopt_ncu.collecting import Collected, collect
from kopt_ncu.report import profile_of, read_if_ours
from kopt_ncu.settings import NcuOptions
from kopt_ncu.tool import INSTALL, find_ncu

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kopt.model.check import Check
    from kopt.model.device import Device
    from kopt.model.diagnosis import Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.probe import Probe, UnderTool


class Ncu:
    """Hardware counters of each kernel that a call of a CUDA candidate launches."""

    class Options(NcuOptions):
        """Options of the profiler."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()
        self._given_up = False

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether ncu is here, whether it may read counters, and whether there is a GPU."""
        return machine_checks(self.options.ncu)

    @kopt.hookimpl
    def kopt_profile(self, evaluation: Evaluation, device: Device, probe: Probe) -> Profile | None:
        """Return the counters of one call's kernels, or why there are none.

        None for a CPU, for a candidate that is not correct, and after a failure that is this
        machine's: that one is told once and ncu is not started again.
        """
        if device.kind != "cuda" or evaluation.status is not Status.CORRECT or self._given_up:
            return None
        collected = self._collect(probe, evaluation.id)
        self._given_up = collected.lasting
        return profile_of(collected.kernels, evaluation.id, collected.notes, whole=collected.whole)

    @kopt.hookimpl
    def kopt_read_profile(self, path: Path) -> Profile | None:
        """Return what a report of Nsight Compute says; None for other files. Raises PluginError."""
        return read_if_ours(path)

    def _collect(self, probe: Probe, candidate: str) -> Collected:
        ncu = find_ncu(self.options.ncu)
        if ncu is None:
            missing = f"no {self.options.ncu}" if self.options.ncu else "ncu is not here"
            return Collected(notes=(f"{missing}; {INSTALL}",), lasting=True)

        def under(command: tuple[str, ...]) -> UnderTool:
            return probe.under(command, calls=1, seconds=self.options.timeout_seconds)

        return collect(ncu, self.options, under, candidate)
