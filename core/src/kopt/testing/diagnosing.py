"""What profilers and judges have to do (needs pytest)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from kopt.errors import CandidateError
from kopt.model.device import Device
from kopt.model.diagnosis import Metric, Profile
from kopt.model.evaluation import Evaluation
from kopt.model.probe import Probe, Timeline, UnderTool
from kopt.model.verification import Status
from kopt.testing import problems, records
from kopt.testing.plugin import PluginContract
from kopt.testing.strategy import a_parent


def _parents() -> list[Evaluation]:
    good = a_parent()
    return [good, records.failed(good.candidate.with_values("test", UNROLL=4), Status.HANG)]


class NoTool:
    """A probe of a machine without any tool: nothing starts, nothing is traced or listed."""

    def under(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        calls: int = 1,
        seconds: float = 120.0,
    ) -> UnderTool:
        """Say that the tool was not started."""
        return UnderTool(fault=f"{command[0]} was not started: no such file", seconds=0.0)

    def timeline(self, calls: int = 10) -> Timeline | None:
        """Say that there is no trace."""
        return None

    def listing(self, kind: str) -> dict[str, str]:
        """Say that there is no such listing."""
        raise CandidateError(Status.UNSUPPORTED, f"there is no {kind} here")


class ProfilerContract(PluginContract):
    """A profiler says what it measured of the candidate that it was asked about, or nothing."""

    role: ClassVar[str] = "profiler"

    def probe(self, device: Device) -> Probe:
        """Return what the plugin is given to work with; override to have one that gives answers."""
        return NoTool()

    def test_a_profile_is_of_that_candidate_and_in_numbers(self) -> None:
        """A metric that could not be read is absent: never NaN, infinite or named twice."""
        hooks = self.hooks()
        for device in (records.cpu(), records.gpu()):
            for parent in _parents():
                probe = self.probe(device)
                for profile in hooks.kopt_profile(problems.row_sum(), parent, device, probe):
                    assert profile.candidate == parent.id
                    assert profile.profiler
                    for metrics in (profile.metrics, *(each.metrics for each in profile.kernels)):
                        names = [metric.name for metric in metrics]
                        assert len(set(names)) == len(names)
                        assert all(math.isfinite(metric.value) for metric in metrics)
        assert hooks.failures == []


class JudgeContract(PluginContract):
    """A judge names a bottleneck with its evidence, or has no opinion."""

    role: ClassVar[str] = "judge"

    def profiles(self, parent: Evaluation) -> list[Profile]:
        """Return what profilers said of a parent; override to add the metrics that yours reads."""
        metric = Metric(name="dram_bytes", value=float(1 << 20), unit="B")
        return [Profile(profiler="test", candidate=parent.id, metrics=(metric,))]

    def test_a_diagnosis_has_its_reasons(self) -> None:
        """Also without any profile, and for a parent that was not measured."""
        for parent in _parents():
            for profiles in ([], self.profiles(parent)):
                hooks = self.hooks()
                first, again = (
                    hooks.kopt_judge(
                        problems.row_sum(), problems.row_sum_signature(), parent, profiles,
                        records.cpu(), records.history([parent]),
                    )
                    for _ in range(2)
                )  # fmt: skip
                assert first == again
                assert all(diagnosis.judge and diagnosis.bottleneck for diagnosis in first)
                assert hooks.failures == []
