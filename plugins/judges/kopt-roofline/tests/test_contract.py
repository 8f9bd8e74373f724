"""The judge keeps the contract of judges."""

from __future__ import annotations

from kopt.model.diagnosis import KernelProfile, Profile, metrics_of
from kopt.model.evaluation import Evaluation
from kopt.testing import JudgeContract
from kopt_roofline import Roofline


class TestRoofline(JudgeContract):
    def plugin(self) -> Roofline:
        return Roofline(Roofline.Options(findings=5))

    def profiles(self, parent: Evaluation) -> list[Profile]:
        kernel = {"grid_blocks": 16.0, "multiprocessors": 132.0, "dram_busy_percent": 4.0}
        code = KernelProfile(name="row_sum", metrics=metrics_of({"spill_bytes": 64}))
        return [
            Profile(
                profiler="ncu", candidate=parent.id,
                kernels=(KernelProfile(name="row_sum", metrics=metrics_of(kernel)),),
            ),
            Profile(profiler="static", candidate=parent.id, kernels=(code,)),
        ]  # fmt: skip
