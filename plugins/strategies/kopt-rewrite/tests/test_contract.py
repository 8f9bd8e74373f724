"""The plugins keep kopt's contracts, also while a model answers."""

from __future__ import annotations

import json
from typing import ClassVar

from kopt.model.budget import Budget
from kopt.model.completion import Completion, CompletionRequest
from kopt.model.device import Target
from kopt.testing import JudgeContract, StrategyContract, problems, records
from kopt_rewrite import ModelJudge, Rewrite

CPP = """\
#include <cstdint>
extern "C" void kernel(const float* x, float* out) {{
    out[{number}] = x[{number}];
}}
"""
IDEAS = json.dumps([{"title": f"idea {n}", "change": "do it"} for n in range(3)])


class Answering:
    """Answers each request by its own text: C++ with a number, or ideas."""

    def complete(self, requests: list[CompletionRequest]) -> list[Completion]:
        return [Completion(text=self._text(request), model="test") for request in requests]

    def any_of(self, requests: list[CompletionRequest]) -> list[Completion]:
        return self.complete(requests)

    def give_up(self, requests: list[CompletionRequest]) -> None:
        assert requests

    def _text(self, request: CompletionRequest) -> str:
        if request.role == "analysis":
            return IDEAS
        if request.role == "reflection":
            return '[{"lesson": "none"}]'
        return f"```cpp\n{CPP.format(number=int(request.id[:6], 16))}```"

    def prefetch(self, requests: list[CompletionRequest]) -> None:
        assert requests

    def was(self, request: CompletionRequest, outcome: str, *, usable: bool) -> None:
        assert outcome


class TestRewrite(StrategyContract):
    languages: ClassVar[tuple[str, ...]] = ("cpp", "cuda", "triton", "torch")

    def plugin(self):
        return Rewrite()

    def ask(self, hooks, case, language, beside=()):
        target = Target(language=language, beside=beside, device=case.device)
        proposed = hooks.kopt_propose(
            case.problem, case.signature, target,
            case.parent, case.diagnoses, records.history(case.past), Answering(),
        )  # fmt: skip
        assert hooks.failures == []
        return [candidate for _, candidate in proposed]


class TestWithoutAModel(StrategyContract):
    proposes: ClassVar[bool] = False

    def plugin(self):
        return Rewrite()


class TestModelJudge(JudgeContract):
    def plugin(self):
        return ModelJudge()

    def test_an_estimate_asks_it(self):
        hooks = self.hooks()
        target = Target(language="cpp", device=records.cpu())
        asked = (problems.row_sum(), problems.row_sum_signature(), target, Budget(), 0)
        assert [calls.role for _, calls in hooks.kopt_expect(*asked)] == ["analysis"]
        assert hooks.failures == []
