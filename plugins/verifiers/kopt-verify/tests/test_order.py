"""Results that depend on earlier calls are found, and harmless differences are not held against."""

from __future__ import annotations

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt.testing.verifier import HONEST, cpp_add
from kopt_verify import order

_LOOP = "for (int64_t i = 0; i < n; ++i)"
_CALLS = "static int calls = 0; ++calls;"
DEPENDENT: dict[str, tuple[str, Status]] = {
    "right for twenty calls": (
        f"{_CALLS} {_LOOP} out[i] = calls > 20 ? 0.0f : x[i] + y[i];", Status.WRONG
    ),
    "now right, now wrong": (
        f"{_CALLS} {_LOOP} out[i] = calls > 8 && calls % 3 == 2 ? 0.0f : x[i] + y[i];",
        Status.NON_DETERMINISTIC,
    ),
    "kept by the address of an input": (
        "static std::map<float*, std::vector<float>> kept; auto& mine = kept[x]; "
        f"if (mine.empty()) {_LOOP} mine.push_back(x[i] + y[i]); {_LOOP} out[i] = mine[i];",
        Status.WRONG,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_depends_on_earlier_calls_is_rejected(judge, name):
    body, status = DEPENDENT[name]
    source = cpp_add(body).replace(
        "#include <cstdint>", "#include <cstdint>\n#include <map>\n#include <vector>"
    )
    verdict = judge(source, depth="winner")
    assert verdict.status is status, verdict.stages
    failed = [stage for stage in verdict.stages if stage.outcome == "fail"]
    assert len(failed) == 1 and failed[0].evidence


KEPT_BUFFER = """
import torch

kept = {}

def kernel_function(x, y):
    return torch.add(x, y, out=kept.setdefault(x.shape, torch.empty_like(x)))
"""


def test_a_buffer_that_every_call_returns_is_found_each_time(judge):
    for _ in range(3):
        verdict = judge(KEPT_BUFFER, depth="winner", language="torch")
        assert verdict.status is Status.WRONG, verdict.stages
        (failed,) = [stage for stage in verdict.stages if stage.outcome == "fail"]
        assert failed.stage == "determinism"
        assert failed.evidence.startswith("the next call spoils what this one returned")


def test_an_honest_kernel_repeats_itself_bit_for_bit(judge):
    verdict = judge(HONEST, depth="winner")
    assert verdict.status is Status.CORRECT
    (stage,) = [stage for stage in verdict.stages if stage.stage == "determinism"]
    assert stage.outcome == "pass" and "same bits every time" in stage.evidence


def test_last_bits_that_change_are_said_and_accepted(judge):
    body = f"{_CALLS} {_LOOP} out[i] = (x[i] + y[i]) * (calls % 2 ? 1.0f : 1.0000001f);"
    verdict = judge(cpp_add(body), depth="winner")
    assert verdict.status is Status.CORRECT, verdict.stages
    (stage,) = [stage for stage in verdict.stages if stage.stage == "determinism"]
    assert "differ in bits" in stage.evidence


def test_a_search_leaves_the_stage_out(judge):
    verdict = judge(HONEST)
    (stage,) = [stage for stage in verdict.stages if stage.stage == "determinism"]
    assert stage.outcome == "not run"


def test_large_results_are_judged_where_they_lie(judge, monkeypatch):
    monkeypatch.setattr("kopt_verify.standing._MEMORY_SHARE", 1 << 62)
    verdict = judge(HONEST, depth="winner")
    (stage,) = [stage for stage in verdict.stages if stage.stage == "determinism"]
    assert stage.outcome == "pass" and "too large" in stage.evidence
    kept = (
        "static std::map<float*, std::vector<float>> kept; auto& mine = kept[x]; "
        f"if (mine.empty()) {_LOOP} mine.push_back(x[i] + y[i]); {_LOOP} out[i] = mine[i];"
    )
    source = cpp_add(kept).replace(
        "#include <cstdint>", "#include <cstdint>\n#include <map>\n#include <vector>"
    )
    assert judge(source, depth="winner").status is Status.WRONG


@pytest.mark.parametrize("small", [True, False])
def test_large_inputs_make_way_and_come_back_with_the_same_content(trials, monkeypatch, small):
    monkeypatch.setattr(order, "fits", lambda reference, workload, times: small)
    trial = trials.of(parse_kernel(HONEST, "cpp"), depth="winner")
    with order.LastInputs(trial) as last:
        first = last.lent()
        assert trial.run(first).structure == "tensor"
        content = first.tensors["x"].clone()
        last.make_way()
        assert bool(first.segments) is small
        again = last.lent()
        assert (again is first) is small
        assert bool((again.tensors["x"] == content).all())
        assert trial.run(again).structure == "tensor"
    assert again.segments == []
