"""The strategy keeps the contract of strategies, in a situation that it knows."""

from __future__ import annotations

from acme_kopt import Recurrences

from kopt.model.problem import ArgumentInfo, InputSpec, Signature, TensorInfo, WorkloadSignature
from kopt.testing import StrategyCase, StrategyContract
from kopt.testing.problems import function_problem
from kopt.testing.records import cpu


class TestRecurrences(StrategyContract):
    languages = ("cpp",)

    def plugin(self):
        return Recurrences()

    def cases(self):
        x = TensorInfo(name="x", dtype="float32", shape=(8, 4))
        inputs = (InputSpec(name="x", shape=(8, 4)), InputSpec(name="weight", value=0.5))
        problem = function_problem("def moving_average(x, weight): ...", "moving_average", inputs)
        workload = WorkloadSignature(
            arguments=(
                ArgumentInfo(name="x", kind="tensor", tensor=x),
                ArgumentInfo(name="weight", kind="scalar", value=0.5),
            ),
            outputs=(x.model_copy(update={"name": "out0"}),),
            compulsory_bytes=256,
        )
        known = StrategyCase(problem, Signature(workloads={"default": workload}), cpu())
        return [*super().cases(), known]
