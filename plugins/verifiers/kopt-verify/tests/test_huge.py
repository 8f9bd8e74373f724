"""More elements than an index reaches; the border is put low enough for a test, and for 16 bits."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Workload
from kopt.testing.problems import function_problem, vector_add
from kopt.testing.trials import Trials
from kopt.testing.verifier import HONEST, cpp_add
from kopt_torch.reference import TorchReference
from kopt_verify import huge
from kopt_verify.beyond import Beyond
from kopt_verify.edges import check_edges

BORDER = 1 << 15
SUM = "import torch\n\ndef kernel_function(x, y):\n    return "
NARROW = "for (int64_t i = 0; i < n; ++i) { const int16_t at = i; if (at >= 0) out[at] = x[at] + y[at]; }"
WRAPPED = "for (int64_t i = 0; i < n; ++i) out[i] = x[i & 32767] + y[i & 32767];"


@pytest.fixture
def low(monkeypatch):
    """The border where 16 bits end, on any device."""
    monkeypatch.setattr(huge, "_BORDER", BORDER)
    monkeypatch.setattr(huge, "_KINDS", {"cpu"})


def look(trials, source, language="cpp"):
    trial = trials.of(parse_kernel(source, language), depth="winner")
    with Beyond(trial, "default") as beyond:
        return huge.look_at_huge(trial, beyond)


def rows(body, *shape, **sizes):
    spec = InputSpec(name="x", shape=shape)
    source = f"def f(x):\n    return {body}\n"
    return function_problem(source, "f", (spec,), workloads=(Workload(sizes=sizes),))


def test_an_honest_kernel_is_right_beyond_the_border(trials, low):
    said, found = look(trials, HONEST)
    assert said == "" and found.kind == "right"
    assert found.change == "4096=36864 (more than 2^31 elements)"


@pytest.mark.parametrize("body", [NARROW, WRAPPED])
def test_an_index_that_is_too_narrow_is_seen_and_told(trials, low, body):
    said, found = look(trials, cpp_add(body))
    assert said == "" and found.kind == "wrong", found
    trial = trials.of(parse_kernel(cpp_add(body), "cpp"), depth="winner")
    with Beyond(trial, "default") as beyond:
        stage = check_edges(trial, beyond)
    assert stage.outcome == "pass"  # a shape that nobody asked for: said, not refused
    assert "SILENTLY WRONG (wrong) on 4096=36864 (more than 2^31 elements)" in stage.evidence


def test_only_the_last_rows_wrong_is_seen(trials, low):
    body = "for (int64_t i = 0; i < n; ++i) out[i] = i < n - 9 || n < 32768 ? x[i] + y[i] : 0.0f;"
    assert look(trials, cpp_add(body))[1].said.startswith("rows 32768 to 36863")


def test_a_kernel_may_refuse(trials, low):
    source = f"{SUM}x + y if x.numel() < {BORDER} else 1 / 0\n"
    assert look(trials, source, "torch")[1].kind == "refused"


TOGETHER = {
    "rows summed up": ("x.cumsum(0)", (16, 4)), "the mean of all": ("x - x.mean()", (16, 4)),
    "no rows left": ("x.sum()", (16, 4)), "columns": ("x.sum(0)", (16, 4)),
    "its own shape": ("x @ x", (16, 16)), "whole numbers": ("x.argmax(-1)", (16, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_one_another_are_not_looked_at(open_trials, low, name):
    body, shape = TOGETHER[name]
    said, found = look(open_trials(rows(body, *shape)), f"def kernel_function(x):\n    return {body}\n", "torch")  # fmt: skip
    assert found is None
    assert said.endswith("what a part of it should be cannot be computed from that part alone")


def test_rows_of_several_elements_cross_the_border_by_number(open_trials, low):
    trials = open_trials(rows("x.softmax(-1)", "rows", "cols", rows=6, cols=32))
    source = "def kernel_function(x):\n    return x.softmax(-1)\n"
    said, found = look(trials, source, "torch")
    assert (said, found.kind) == ("", "right")
    assert found.change.startswith("rows=1152 ")


def test_what_is_not_looked_at_is_said_with_the_reason(trials, monkeypatch):
    monkeypatch.setattr(huge, "_BORDER", BORDER)
    said, found = look(trials, HONEST)
    assert found is None and "on a CPU that takes minutes" in said
    monkeypatch.setattr(huge, "_KINDS", {"cpu"})
    monkeypatch.setattr(huge, "_free", lambda reference: 1000)
    said, found = look(trials, HONEST)
    assert found is None and "and half of what is free is 0 GB" in said


def test_what_others_have_reserved_is_not_taken(trials, low, monkeypatch):
    asked = []

    @contextmanager
    def lend(self, nbytes):
        asked.append(nbytes)
        yield False

    monkeypatch.setattr(TorchReference, "lend", lend)
    said, found = look(trials, HONEST)
    assert found is None and said.endswith("other runs have reserved the memory")
    assert asked == [3 * 3 * 4 * 36864]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "kind"),
    [("out.copy_(x.relu())", "right"), ("torch.relu_(out.view(-1)[: 2**31 - 1].copy_(x.view(-1)[: 2**31 - 1]))", "wrong")],
)  # fmt: skip
def test_two_to_the_power_of_31_on_a_gpu(tmp_path, body, kind):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    spec = InputSpec(name="x", shape=("rows", 1024), dtype="float16")
    problem = function_problem(
        "def f(x):\n    return x.relu()\n",
        "f",
        (spec,),
        workloads=(Workload(sizes={"rows": 4096}),),
    )
    source = f"import torch\n\ndef kernel_function(x):\n    out = torch.zeros_like(x)\n    {body}\n    return out\n"  # fmt: skip
    with Trials(problem, tmp_path, device="cuda", run_seconds=60.0) as trials:
        said, found = look(trials, source, "torch")
    if "of what is free" in said:
        pytest.skip(said)
    assert (said, found.kind) == ("", kind), found


def test_a_problem_that_is_as_large_itself_needs_none(open_trials, low):
    said, found = look(open_trials(vector_add(BORDER + 1)), HONEST)
    assert found is None and said == "the problem itself has more than 2^31 elements"
